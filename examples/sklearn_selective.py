"""A scikit-learn classifier becomes a selective one."""

import joblib
from sklearn_task import X, X_ood, classifier, y  # yours

import demur as dm
from demur.adapters.sklearn import SelectiveClassifier

model = dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)
selective = SelectiveClassifier(classifier, model=model, reject_label=-1).fit(X, y, X_ood=X_ood)
joblib.dump(selective, "selective.joblib")
selective = joblib.load("selective.joblib")
print(selective.predict(X[:5]), selective.predict(X_ood[:5]), selective.tuning_.point)
