"""Stands in for yours: a classifier, data it knows, and data it does not: the digits 8 and 9."""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

digits, names = load_digits(return_X_y=True)
X, y, X_ood = digits[names < 8], names[names < 8], digits[names >= 8]
classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
