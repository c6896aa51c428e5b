"""The texts of a study's arms: each prepared once, its n-grams counted once, refused where an arm cannot use it."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from vitral.core.errors import UsageError
from vitral.core.language import _
from vitral.data import Dataset, prepare
from vitral.data.batches import Batches, Split, thinned
from vitral.data.config import CorpusConfig
from vitral.data.tokenizers import Tokenizer
from vitral.evaluation import NgramBaselines, ngram_baselines
from vitral.evaluation.losses import bits_per_nat, final_split, reading_of_config
from vitral.evaluation.masking import filling_of
from vitral.studies.design import Study
from vitral.studies.resolution import ResolvedArm, tokens_key
from vitral.training.costs import require_training_memory


def mean_baselines(several: Sequence[NgramBaselines]) -> NgramBaselines:
    """The mean of several texts' baselines."""
    orders = {order: fmean(one.orders[order] for one in several) for order in several[0].orders}
    return NgramBaselines(orders, fmean(one.test_bigram_entropy for one in several))


class Texts:
    """The texts of all arms, each prepared once, with its n-gram baselines counted once."""

    def __init__(self, given: Dataset | None = None, tokenizers: Mapping[str, Tokenizer] | None = None) -> None:
        """Start with a prepared text, if there is one, and the tokenizers of runs that arms begin from."""
        self._tokenizers = tokenizers or {}
        self._prepared: dict[str, Dataset] = {}
        if given is not None and tokens_key(given.config) not in self._tokenizers:
            self._prepared[given.config.model_dump_json()] = given
        self._baselines: dict[str, NgramBaselines] = {}

    def of(self, config: CorpusConfig) -> Dataset:
        """The text of a configuration."""
        key = config.model_dump_json()
        if key not in self._prepared:
            tokenizer = self._tokenizers.get(tokens_key(config))
            self._prepared[key] = prepare(config, tokenizer=tokenizer, grow=tokenizer is not None)
        return self._prepared[key]

    def vocab_size(self, config: CorpusConfig) -> int:
        """Tokens of its vocabulary."""
        return self.of(config).tokenizer.vocab_size

    def baselines(self, dataset: Dataset, test: Split) -> NgramBaselines:
        """N-gram baselines counted on the training split and scored on `test`."""
        key = f"{dataset.fingerprint} {len(test.segments)} {test.segments.tobytes().hex()[:64]}"
        if key not in self._baselines:
            self._baselines[key] = ngram_baselines(dataset.splits["train"], test, dataset.tokenizer.vocab_size)
        return self._baselines[key]


def require_fit(
    study: Study,
    arms: Sequence[ResolvedArm],
    seeds: Sequence[int],
    texts: Texts,
    designed: Sequence[ResolvedArm],
) -> None:
    """Refuse, before anything is trained, an arm that does not fit into memory, or a text that is too short for one.

    Args:
        study: the design.
        arms: as they run, tuned or not.
        seeds: from which they run.
        texts: of the arms.
        designed: all arms of the study, the base first.

    Raises:
        UsageError: names the arm and the reason.
    """
    for arm, config in ((arm, arm.seeded(seed)) for arm in arms for seed in seeds):
        data, reading = texts.of(config.corpus), reading_of_config(config.model, config.training.objective)
        where = _("study {study}, arm {arm}", study=study.name, arm=arm.arm.name)
        require_training_memory(config, data.tokenizer.vocab_size, where)
        try:
            Batches(data.splits["train"], context_length=reading, batch_size=config.training.batch_size, seed=0)
            for part in () if reading.by_label else ("validation", "test"):
                bits_per_nat(thinned(data.splits[part], config.training.evaluation_tokens), reading, data.tokenizer)
            filling_of(config.training.objective, data.tokenizer)
        except UsageError as error:
            raise UsageError(
                "{where}: the text is too short for this budget: {error}", where=where, error=error
            ) from None
        parent = next((other for other in designed if other.arm.name == arm.arm.init_from), None)
        if parent is not None and texts.of(parent.config.corpus).tokenizer.plain() != data.tokenizer.plain():
            raise UsageError(
                "{where}: begins from the weights of {parent}, whose text makes other tokens; set "
                'corpus.tokenizer = "byte"',
                where=where,
                parent=parent.arm.name,
            )
        same = data.tokenizer.plain() == texts.of(designed[0].config.corpus).tokenizer.plain()
        if not same and arm.arm.compared and study.unit == "nats per token":
            raise UsageError(
                "{where}: its text makes other tokens than the base's, so losses per token cannot be compared; set "
                'unit = "bits per character", or tokenizer = "byte"',
                where=where,
            )


def baselines_of(base: ResolvedArm, seeds: Sequence[int], texts: Texts) -> NgramBaselines:
    """N-gram baselines of the base arm's text; where seeds draw it, their mean over the seeds."""
    datasets = [texts.of(base.seeded(seed).corpus) for seed in (seeds if base.draws_text else seeds[:1])]
    each = [texts.baselines(dataset, final_split(dataset)) for dataset in datasets]
    return each[0] if len({id(one) for one in each}) == 1 else mean_baselines(each)
