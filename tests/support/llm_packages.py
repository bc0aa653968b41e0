"""Runs of packages that evaluate language models, from questions to the files they write.

The models are made up and the questions are here, so that no network is needed. Tests run them
where a package is installed; the files in ``tests/data/llm`` were written by

    python tests/support/llm_packages.py lm_eval tests/data/llm

and the same with ``inspect_ai``, ``lm_polygraph`` and ``uqlm``, each in an environment of its own.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

# question, choices, the right one, distance to the nearest passage
QUESTIONS = (
    ("Capital of France?", ("Paris", "Rome", "Berlin"), 0, 0.25),
    ("Colour of snow?", ("red", "white"), 1, 0.5),
    ("Two and two?", ("5", "3", "4"), 2, 0.75),
    ("Moons of Mars?", ("2", "9"), 0, 1.5),
)


def log_probability(question, choice):
    """What the model of lm-eval says of a choice: the shorter, the likelier."""
    return -0.5 * len(choice) - len(question) / 64


LM_EVAL_TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
metadata: {{version: 1.0}}
{more}
"""
CHOICES = """
output_type: multiple_choice
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{gold}}}}"
metric_list: [{{metric: acc}}, {{metric: {second}}}]
"""
GENERATED = """
output_type: generate_until
doc_to_target: "{{choices[gold]}}"
generation_kwargs: {until: ["."]}
metric_list: [{metric: exact_match}]
filter_list:
  - {name: strict, filter: [{function: take_first}]}
  - name: loose
    filter: [{function: regex, regex_pattern: "([A-Z][a-z]+)"}, {function: take_first}]
"""


def lm_eval(folder):
    """Evaluate three tasks by lm-eval and keep the files of their samples."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class ShortIsLikely(LM):
        def loglikelihood(self, requests, disable_tqdm=False):
            return [(log_probability(*request.args), False) for request in requests]

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            raise NotImplementedError

        def generate_until(self, requests, disable_tqdm=False):
            return ["Paris it is" for _ in requests]

    tasks = {
        "choices": CHOICES.format(second="acc_norm"),
        "mutual": CHOICES.format(second="acc_mutual_info"),
        "filters": GENERATED,
    }
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "tasks").mkdir()
        with open(work / "questions.jsonl", "w", encoding="utf-8") as file:
            for question, choices, gold, distance in QUESTIONS:
                doc = {"question": question, "choices": choices, "gold": gold, "distance": distance}
                file.write(json.dumps(doc) + "\n")
        for task, more in tasks.items():
            text = LM_EVAL_TASK.format(name=task, data=work / "questions.jsonl", more=more)
            (work / "tasks" / f"{task}.yaml").write_text(text)
        tracker = EvaluationTracker(output_path=str(work / "out"))
        manager = TaskManager(include_path=str(work / "tasks"), include_defaults=False)
        found = simple_evaluate(
            ShortIsLikely(), tasks=list(tasks), task_manager=manager, log_samples=True
        )
        tracker.save_results_aggregated(found, samples=found["samples"])
        for task in tasks:
            tracker.save_results_samples(task, found["samples"][task])
            (written,) = work.rglob(f"samples_{task}_*.jsonl")
            shutil.copy(written, folder / f"lm_eval_{task}.jsonl")


ANSWERS = (("It is Paris", (-0.1, -0.2, -0.3)), ("White", (-0.5,)), ("Maybe 5", (-2.0, -3.0)))


def inspect_ai(folder, failing=False):
    """Evaluate questions by inspect-ai, if asked with one that fails: as .eval and as .json."""
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import Logprob, Logprobs, ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import Score, accuracy, match, scorer
    from inspect_ai.solver import generate, solver

    @scorer(metrics=[accuracy()])
    def right_and_surprise():
        async def score(state, target):
            tokens = state.output.choices[0].logprobs.content
            surprise = -sum(token.logprob for token in tokens) / len(tokens)
            right = target.text.lower() in state.output.completion.lower()
            return Score(value="C" if right else "I", metadata={"surprise": surprise, "why": "?"})

        return score

    @solver
    def fail_at_mars():
        async def solve(state, generate):
            if "Mars" in state.input_text:
                raise RuntimeError("no answer in time")
            return state

        return solve

    def output(text, log_probabilities):
        tokens = zip(text.split(), log_probabilities, strict=True)
        made = ModelOutput.from_content("mockllm/model", text)
        made.choices[0].logprobs = Logprobs(
            content=[Logprob(token=token, logprob=value) for token, value in tokens]
        )
        # Counted by a vocabulary that would be downloaded, if it were not said.
        made.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return made

    questions = [
        Sample(id=f"q{k}", input=question, target=choices[gold], metadata={"distance": distance})
        for k, (question, choices, gold, distance) in enumerate(QUESTIONS[: 3 + failing])
    ]
    for kind in ("eval", "json"):
        outputs = [output(*answer) for answer in ANSWERS]
        with tempfile.TemporaryDirectory() as name:
            task = Task(
                dataset=MemoryDataset(questions, name="questions"),
                solver=[fail_at_mars(), generate()],
                scorer=[right_and_surprise(), match()],
                name="questions",
            )
            (log,) = eval(
                task,
                model=get_model("mockllm/model", custom_outputs=outputs, memoize=False),
                **{"log_dir": name, "log_format": kind, "display": "none"},
                **{"max_samples": 1, "fail_on_error": False},
            )
            assert log.status == "success", log.error
            (written,) = Path(name).glob(f"*.{kind}")
            shutil.copy(written, folder / f"inspect_ai.{kind}")


WORDS = "<pad> <eos> <unk> Capital of France Colour snow Two and Moons Mars ? Paris white 4 2"


def lm_polygraph(folder):
    """Let a network of random weights answer, estimate its doubts by lm-polygraph, save both.

    The numbers that were in memory are written beside, as JSON.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    import torch
    from lm_polygraph.defaults.register_default_stat_calculators import (
        register_default_stat_calculators,
    )
    from lm_polygraph.estimators import (
        MaximumSequenceProbability,
        MaximumTokenProbability,
        MeanTokenEntropy,
    )
    from lm_polygraph.generation_metrics.accuracy import AccuracyMetric
    from lm_polygraph.ue_metrics import PredictionRejectionArea
    from lm_polygraph.utils.builder_enviroment_stat_calculator import (
        BuilderEnvironmentStatCalculator,
    )
    from lm_polygraph.utils.dataset import Dataset
    from lm_polygraph.utils.manager import UEManager
    from lm_polygraph.utils.model import WhiteboxModel
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    numbers = {word: number for number, word in enumerate(WORDS.split())}
    words = Tokenizer(WordLevel(numbers, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **special)
    torch.manual_seed(0)
    config = GPT2Config(
        **{"vocab_size": len(numbers), "n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2},
        **{"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0},
        attn_implementation="eager",
    )
    network = WhiteboxModel(GPT2LMHeadModel(config).eval(), tokenizer, model_path="made up")
    asked = [question.replace("?", " ?") for question, *_ in QUESTIONS]
    # What it says, which is the same word again and again, is right of the second question.
    said = tokenizer.decode(
        network.model.generate(
            **tokenizer(asked[1:2], return_tensors="pt", return_token_type_ids=False),
            **{"max_new_tokens": 4, "do_sample": False},
        )[0, -4:]
    )
    manager = UEManager(
        Dataset(asked, ["Paris", said, "4", "2"], batch_size=2),
        network,
        [MaximumSequenceProbability(), MeanTokenEntropy(), MaximumTokenProbability()],
        BuilderEnvironmentStatCalculator(network),
        register_default_stat_calculators("Whitebox"),
        [AccuracyMetric()],
        [PredictionRejectionArea()],
        [],
        **{"ignore_exceptions": False, "verbose": False, "max_new_tokens": 4},
        # Tensors, which are left out, beside the numbers.
        save_stats=["greedy_log_likelihoods", "embeddings"],
    )
    manager()
    manager.save(str(folder / "lm_polygraph.man"))
    kept = {
        name: [float(value) for value in values]
        for (level, name), values in {**manager.gen_metrics, **manager.estimations}.items()
        if level == "sequence"
    }
    (folder / "lm_polygraph.json").write_text(json.dumps(kept, indent=1) + "\n")


def uqlm_result():
    """Ask a made-up chat model by uqlm, and return how confident it is of the answers."""
    import asyncio

    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from uqlm import WhiteBoxUQ

    class MadeUp(BaseChatModel):
        logprobs: bool = True
        temperature: float = 1.0

        @property
        def _llm_type(self):
            return "made up"

        def _generate(self, messages, stop=None, run_manager=None, **more):
            asked = [question for question, *_ in QUESTIONS]
            text, values = ANSWERS[asked.index(messages[-1].content)]
            tokens = zip(text.split(), values, strict=True)
            content = [
                {"token": token, "logprob": value, "top_logprobs": []} for token, value in tokens
            ]
            answer = AIMessage(text, response_metadata={"logprobs": {"content": content}})
            return ChatResult(generations=[ChatGeneration(message=answer)])

    scorers = ["min_probability", "sequence_probability"]
    quantifier = WhiteBoxUQ(llm=MadeUp(), scorers=scorers, length_normalize=True)
    asked = [question for question, *_ in QUESTIONS[: len(ANSWERS)]]
    return asyncio.run(quantifier.generate_and_score(asked, show_progress_bars=False))


def uqlm(folder):
    """Keep the frame of a result of uqlm."""
    path = folder / "uqlm.json"
    uqlm_result().to_df().to_json(path, orient="records", indent=1, double_precision=15)


def main():
    """Run one package."""
    package, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    globals()[package](folder)


if __name__ == "__main__":
    main()
