"""A text from every arm, written under the same settings from the same stream of chance."""

from vitral.decoding import Sampling, generate
from vitral.runs import load_run
from vitral.studies.probes.protocol import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult

CHARACTERS = 300
TEMPERATURE = 0.8
SEED = 1
MOST_SAMPLES = 16


def arm_samples(result: StudyResult) -> dict[str, str]:
    """By arm, the text its first finished run writes after its last step, at temperature 0.8, 300 characters.

    Arms that finished from no seed are left out, and those that continue no text; of more than MOST_SAMPLES arms also
    those that are not compared.
    """
    samples = {}
    for arm in result.arms if len(result.arms) <= MOST_SAMPLES else [arm for arm in result.arms if arm.arm.compared]:
        text = _sample(arm)
        if text is not None:
            samples[arm.arm.name] = text
    return samples


def _sample(arm: ArmResult) -> str | None:
    finished = [run for run in arm.runs if run.seed in arm.losses]
    if not finished or not is_causal_lm(arm.config):
        return None
    run = load_run(finished[0].path, "last")
    sampling = Sampling(temperature=TEMPERATURE)
    # No token is shorter than nothing, so as many tokens as characters are enough for all but empty ones.
    sample = generate(run.model, run.tokenizer, [""], max_tokens=CHARACTERS, sampling=sampling, seed=SEED)[0]
    return sample.text[:CHARACTERS]
