"""The rule as a dbt model: a file of SQL that any warehouse runs, here DuckDB."""

from pathlib import Path

import duckdb
from watch_task import rule  # yours

MODEL = """-- Made by demur from rule.json: do not edit, tune again.
{{{{ config(materialized='view') }}}}

select *, {accepted} as accept
from {{{{ ref('scored_inputs') }}}}
"""

folder = Path("models")
folder.mkdir(exist_ok=True)
# The rule knows its columns; other dialects: postgres, spark, bigquery, snowflake, trino.
written = MODEL.format(accepted=rule.to_sql(dialect="duckdb"))
(folder / "decided_inputs.sql").write_text(written)

# What dbt would send to the warehouse once it has filled in the braces.
query = written.split("}}\n", 1)[1].replace("{{ ref('scored_inputs') }}", "scored_inputs")
with duckdb.connect() as connection:
    connection.sql(
        "create table scored_inputs as select * from (values (0.1, -0.2), (4.0, 5.0)) t(msp, knn)"
    )
    for msp, knn, accept in connection.sql(query).fetchall():
        print(msp, knn, "answer" if accept else "ask a person")
