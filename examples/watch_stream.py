"""A stream of inputs: decide on each, count it, and look now and then."""

from watch_task import live_stream, rule  # yours

from demur import Bound
from demur.watch import Watch

watch = Watch(rule, expect=[Bound("selective_risk", at_most=0.08)], ood_prior=(0.05, 0.15))
for number, (scores, loss) in enumerate(live_stream()):
    accepted = rule.accept_one(scores)
    # The loss is None unless someone looked at the answer.
    status = watch.update([scores], loss=[loss])
    # Reading the status is what costs, so not after every row.
    if number % 500 == 499 and status.alarms:
        print(f"after {number + 1} inputs: {status.message}")
        break
watch.save("watch.json")
