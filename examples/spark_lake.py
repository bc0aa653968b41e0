"""Rows in Spark: the rule is tuned by counts in the cluster, and applied there as SQL."""

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, expr

import demur as dm

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

rng = np.random.default_rng(0)
ood = rng.random(4000) < 0.3
wrong = ~ood & (rng.random(4000) < 0.1)
rows = pd.DataFrame(
    {
        "msp": rng.gamma(1 + 2 * wrong + ood),
        "knn": rng.normal(np.where(ood, 2.5, 0.0), 1),
        "is_wrong": wrong,
        "is_ood": ood,
    }
)
frame = spark.createDataFrame(rows).cache()

source = dm.open_source(frame, ["msp", "knn"], loss="is_wrong", ood="is_ood")
tuned = dm.tune(source, dm.TprFprModel(min_tpr=0.8, max_fpr=0.1))
print(f"accepts {tuned.point.tpr:.1%} of ID and {tuned.point.fpr:.1%} of OOD rows")

decided = frame.withColumn("accept", expr(tuned.rule.to_sql(dialect="spark")))
for row in decided.groupBy("is_ood").agg(avg(decided.accept.cast("int")).alias("share")).collect():
    print("OOD" if row.is_ood else "ID", f"{row.share:.1%}")
spark.stop()
