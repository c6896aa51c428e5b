"""The training loop: draw batches, compute gradients, step; evaluate, sample and save on the way.

`run_steps` is the loop. `one_step` is one optimizer step; `after_step` does everything that is due between two steps.
A run can be stopped and resumed at any step with bit-identical results, so no number here depends on the clock or on
how often the run was interrupted, except through sealed decisions.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vitral.core.devices import ordered_sums, precision
from vitral.core.errors import StorageError, TrainingStopped, reason
from vitral.core.language import N_, Message
from vitral.core.streams import ambient_stream
from vitral.data.batches import IGNORED
from vitral.model.transformer import first_target
from vitral.runs import Checkpoint
from vitral.runs.config import ScheduleConfig
from vitral.runs.objectives import predicts_next
from vitral.training import ranks
from vitral.training.objectives import make_inputs
from vitral.training.optimizers import optimizer_tensors
from vitral.training.ranks import RankLost
from vitral.training.stopping import StopAsked
from vitral.training.summing import StepSum
from vitral.training.trainer import ANCHOR_EVERY, Clock, Trainer, link
from vitral.training.views import early_is_due, evaluate_early, is_frame, keep_frame, write_sample

FAULT = StorageError.exit_code
"""The exit code of ranks that have other numbers, although they do the same."""


def run_steps(trainer: Trainer) -> None:
    """Train from the current step to the last, unless a stop is requested.

    Raises:
        TrainingStopped: a loss, a gradient, a weight or the optimizer's state is not finite. That step was not
            applied, and the steps before it are saved.
        RankLost: another rank has ended or does not answer; the whole steps are saved if this one has all weights.
        Exception: raised by the callback; the steps so far are saved.
    """
    state = trainer.state
    clock = trainer.clock = Clock(trainer.config.tokens_per_step, state.step)
    trainer.begin_baselines()
    try:
        with ranks.watched():
            keep_frame(trainer)
            if state.pending:
                after_step(trainer)
            while state.step < trainer.config.training.steps and not is_asked_to_stop(trainer):
                loss, norm, rate = one_step(trainer)
                state.step += 1
                state.loss_sum, state.loss_count = state.loss_sum + loss, state.loss_count + 1
                training = trainer.config.training
                first = state.step - 1 == trainer.saved  # vitral doctor recomputes this step
                if state.step % training.log_every == 0 or state.step == training.steps or first or is_frame(trainer):
                    numbers = {"loss": loss, "learning_rate": rate, "gradient_norm": norm}
                    speed = round(clock.tokens_per_second(state.step), 1)
                    trainer.emit({"event": "step", "step": state.step, **numbers, "tokens_per_second": speed})
                with clock.paused():
                    keep_frame(trainer)
                    after_step(trainer)
                    trainer.show_baselines()
    except StopAsked:
        pass
    except (TrainingStopped, RankLost) as stopped:
        _save_last_good_step(trainer, stopped)
        raise
    finally:
        if trainer.counting is not None:
            trainer.counting.cancel()
    if not trainer.is_finished:
        _emit_end(trainer)
        save(trainer)
    if trainer.failure is not None:
        raise trainer.failure


def is_asked_to_stop(trainer: Trainer) -> bool:
    """Whether a rank was asked to stop; before the next step of all, do what rank 0 has decided to do.

    It asks the planner, if there is one, for a change of the configuration from the next step on, and saves it.

    Raises:
        StorageError: the checkpoint could not be written.
    """
    decision, taken = None, {decision.step for decision in trainer.identity.decisions}
    if trainer.planner is not None and not trainer.request.asked and trainer.state.step not in taken:
        changes = trainer.planner(trainer.state.step)
        decision = changes and trainer.decision(changes).plain()
    asked, decides, looks = ranks.any_of(trainer.request.asked, bool(decision), early_is_due(trainer))
    if asked:  # else a request that has come meanwhile is known before the next step
        trainer.request.asked = True
        return True
    if decides:
        trainer.decide(ranks.broadcast(decision))
        with trainer.clock.paused():
            # The decision is on disk before the first step that it affects, so that a resume takes the same.
            save(trainer)
    if looks:
        with trainer.clock.paused(), trainer.unsharded() as leads:
            if leads:
                evaluate_early(trainer)
    return False


def one_step(trainer: Trainer) -> tuple[float, float, float]:
    """One optimizer step: gradients of its batches, checked, clipped and applied.

    Returns:
        The loss, the gradient norm before clipping, and the learning rate.

    Raises:
        TrainingStopped: the loss, a gradient, a weight or the optimizer's state is not finite; nothing was applied.
        StopAsked: a stop was requested between two of the step's batches; nothing was applied.
    """
    training, step = trainer.config.training, trainer.state.step
    trainer.optimizer.zero_grad()
    chain, summed = trainer.state.chain, StepSum(list(trainer.parameters.values()), training)
    for micro in range(training.accumulation):
        if micro % ranks.size() != ranks.rank():
            chain = link(chain, *trainer.batches.batch(step, micro))
            continue
        if micro:
            trainer.tick()
        with ordered_sums(trainer.device):
            loss, chain = loss_of(trainer, step, micro, chain)
            loss.backward()
        summed.add(loss.detach())
    ranks.require_same(
        N_("the batches, since its text has changed or its machine has a fault; this step was not applied"),
        chain,
        FAULT,
    )
    loss, norm, state = summed.total(), summed.norm(), _norm_of_state(trainer)
    # Fetched at once: each fetch waits until a GPU has finished.
    numbers: list[float] = torch.stack([one.to(state.device) for one in (loss, norm, state)]).tolist()
    _require_finite(trainer, *numbers)
    if training.clip_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(trainer.parameters.values(), training.clip_norm, norm)
    for group in trainer.optimizer.param_groups:
        group["lr"] = learning_rate(training.schedule, group["peak"], step, training.steps)
    trainer.optimizer.step()
    trainer.state.chain = chain
    if (step + 1) % ANCHOR_EVERY == 0:
        trainer.state.anchor_step, trainer.state.anchor = step + 1, chain
    return numbers[0], numbers[1], trainer.optimizer.param_groups[0]["lr"]


def loss_of(trainer: Trainer, step: int, micro: int, chain: str = "") -> tuple[Tensor, str]:
    """Loss of one batch as its part of the loss of a step, and the batch chain extended by this batch.

    The parts of a step are as its targets, so that the loss is that of one large batch: batches of a text have equal
    numbers of them, batches of records have not.
    """
    training, batch = trainer.config.training, trainer.batches.batch(step, micro)
    seed, filling = trainer.config.seed, trainer.filling
    inputs, targets = (tensor.to(trainer.device) for tensor in make_inputs(batch, filling, seed, step, micro))
    opened = filling is not None and filling.is_shifted and filling.is_due(seed, step)
    with ambient_stream(seed, "dropout", step, micro), precision(trainer.device, training.dtype):
        loss = trainer.loss(inputs, targets, opened) / _loss_divisor(trainer, step, micro)
    return loss, link(chain, *batch)


def _loss_divisor(trainer: Trainer, step: int, micro: int) -> float:
    """What a batch's mean loss is divided by, so that the batches of a step add up to the mean over all targets."""
    number, masking, seed = trainer.config.training.accumulation, trainer.filling, trainer.config.seed
    if trainer.dataset.answers is None or number == 1:
        return number
    if trainer.counted[0] != step:
        first = 0 if masking is not None and masking.is_due(seed, step) else first_target(trainer.model.mask)
        made = (make_inputs(trainer.batches.batch(step, each), masking, seed, step, each) for each in range(number))
        trainer.counted = step, [int((targets[..., first:] != IGNORED).sum()) for _, targets in made]
    counts = trainer.counted[1]
    return sum(counts) / max(1, counts[micro])


def after_step(trainer: Trainer) -> None:
    """Do what is due after this step: a sample, an evaluation with a checkpoint, or a checkpoint alone.

    Raises:
        StopAsked: a stop was requested meanwhile; all of it is done again after a resume.
        TrainingStopped: a loss is not finite.
    """
    training, state = trainer.config.training, trainer.state
    last = state.step == training.steps
    evaluating = state.step % training.evaluate_every == 0 or last
    state.pending = evaluating
    # Measured first and logged last: the log of an evaluation that was interrupted shows nothing of it.
    losses: dict[str, float] = {}
    every, watched = training.sample_every, training.watch and predicts_next(training.objective)
    sampling = (evaluating and watched) or (every is not None and (last or state.step % every == 0))
    if evaluating or sampling:
        with trainer.unsharded() as leads:
            losses = ranks.broadcast(evaluate(trainer) if evaluating and leads else {})
            for name, loss in losses.items():
                if not math.isfinite(loss):
                    why = N_("stopped at step {step}: {name} is {loss}")
                    raise _stopped(trainer, why.format(step=state.step, name=name, loss=loss))
            if leads and sampling:
                write_sample(trainer)
    if evaluating:
        trainer.looked = True
        train_loss = state.loss_sum / state.loss_count if state.loss_count else None
        state.loss_sum, state.loss_count = 0.0, 0
        state.note_validation_loss(losses["validation_loss"])
        state.pending = False
        trainer.emit({"event": "evaluation", "step": state.step, "train_loss": train_loss, **losses})
        if last:
            _emit_end(trainer)
        save(trainer)
    elif training.checkpoint_every is not None and state.step % training.checkpoint_every == 0:
        save(trainer)


def _stopped(trainer: Trainer, why: Message) -> TrainingStopped:
    """The error that says why training stops, and what to do."""
    return TrainingStopped(
        "{why}; what was saved before is intact in {path}; try a lower learning rate or training.clip_norm = 1.0",
        why=why,
        path=trainer.folder.path,
    )


def evaluate(trainer: Trainer) -> dict[str, float]:
    """Validation and test loss in the weights' precision.

    Of records there are the shares of exact answers too, and of a mixed objective the losses of hidden tokens.

    Raises:
        StopAsked: a stop was requested meanwhile.
    """
    trainer.count_baselines()
    most = trainer.config.training.evaluation_tokens
    measured = {name: trainer.measured(name, most) for name in ("validation", "test")}
    losses = {f"{name}_loss": one.loss for name, one in measured.items()}
    losses |= {f"{name}_exact_match": one.answers.share for name, one in measured.items() if one.answers is not None}
    if trainer.filling is not None and trainer.masking is None:
        losses |= {f"{name}_masked_loss": trainer.measured(name, most, trainer.filling).loss for name in measured}
    return losses


def save(trainer: Trainer, *, together: bool = True) -> None:
    """Write a checkpoint of this step.

    Args:
        trainer: between two steps.
        together: whether all ranks save it, and compare what they have; else this one alone, which has all weights.

    Raises:
        TrainingStopped: a weight or the optimizer's state is not finite; nothing was written.
        UsageError: a rank has other weights; nothing was written.
        StorageError: the checkpoint could not be written.
    """
    step = trainer.state.step
    culprit = not_finite_state(trainer)
    if culprit is not None:
        raise _stopped(trainer, N_("stopped after step {step}: {culprit}").format(step=step, culprit=culprit))
    state = {**trainer.state.plain(), **trainer.identity.plain(), "corpus": trainer.dataset.fingerprint}
    weights, tensors = trainer.model.state_dict(), optimizer_tensors(trainer.model, trainer.optimizer)
    if trainer.is_sharded:
        weights, tensors = ranks.gathered(weights), ranks.gathered(tensors)
    elif together:
        ranks.require_same(N_("the weights; this step was not saved"), ranks.digest(weights | tensors), FAULT)
    spent = {} if trainer.spent is None else {"seconds": round(trainer.spent(), 3)}
    history = {"environment": trainer.environment, **spent}  # what does not affect the next step
    checkpoint = Checkpoint(step, weights, tensors, state, history)
    trainer.folder.save(checkpoint, keep=trainer.config.training.keep_checkpoints)
    trainer.saved = step


def _emit_end(trainer: Trainer) -> None:
    clock, end = trainer.clock, {"event": "end", "step": trainer.state.step, "finished": trainer.is_finished}
    trainer.emit({**end, "seconds": round(clock.seconds(), 3), "stepped": round(clock.stepped, 3)})


def _save_last_good_step(trainer: Trainer, stopped: TrainingStopped | RankLost) -> None:
    """Record why training stopped, and save the step before the failed one, if its numbers are finite and trusted."""
    trainer.emit(event := {"event": "stopped", "step": trainer.state.step, "reason": reason(stopped).cause})
    is_together = isinstance(stopped, TrainingStopped)
    if (is_together or not trainer.is_sharded) and not_finite_state(trainer) is None:
        save(trainer, together=is_together)
    else:
        trainer.folder.reseal(event)


def not_finite_state(trainer: Trainer, norm: float | None = None) -> Message | None:
    """The first weight or optimizer tensor that is not finite; None if all are, on every rank, as their norm tells."""
    if math.isfinite(float(_norm_of_state(trainer)) if norm is None else norm):
        return None
    optimizer = optimizer_tensors(trainer.model, trainer.optimizer)
    weight = _not_finite(N_("the weight {name} is not finite"), trainer.parameters)
    return weight or _not_finite(N_("the optimizer's {name} is not finite"), optimizer)


def _norm_of_state(trainer: Trainer) -> Tensor:
    """A number that is finite if all weights and the optimizer's state are, unless large ones overflow: their norm."""
    # Detached: where there are parameters PyTorch takes the norms one by one.
    every = [one.detach() for one in trainer.parameters.values()]
    for parameter in trainer.parameters.values():
        every += trainer.optimizer.member_of(parameter).tensors(parameter).values()
    if not trainer.is_sharded:
        return torch.nn.utils.get_total_norm(every)
    return ranks.all_reduce(torch.nn.utils.get_total_norm([ranks.local_rows(one) for one in every]))


def _not_finite(sentence: Message, tensors: Mapping[str, Tensor | None]) -> Message | None:
    """A sentence about the first of some tensors that is not finite."""
    for name, tensor in tensors.items():
        if tensor is not None and not bool(ranks.full_tensor(tensor.detach()).isfinite().all()):
            return sentence.format(name=name)
    return None


def _require_finite(trainer: Trainer, loss: float, norm: float, state: float) -> None:
    """Stop before a step whose numbers are not finite: the norm of the state, the loss, or the gradients' norm.

    Raises:
        TrainingStopped: names the step, its batch, and what is not finite.
    """
    if math.isfinite(loss + norm + state):
        return
    culprit = not_finite_state(trainer, state)
    if culprit is None and not math.isfinite(loss):
        culprit = N_("the loss is {loss}").format(loss=loss)
    elif culprit is None:
        if math.isfinite(norm):
            return  # large numbers whose norm overflows
        gradients = {name: parameter.grad for name, parameter in trainer.parameters.items()}
        culprit = _not_finite(N_("the gradient of {name} is not finite"), gradients)
        culprit = culprit or N_("the gradients' norm is {norm}").format(norm=norm)
    step, sentence = trainer.state.step, N_("stopped before step {step}: {culprit} (batch {batch} of seed {seed})")
    message = sentence.format(culprit=culprit, step=step + 1, batch=step, seed=trainer.config.seed)
    raise _stopped(trainer, message)


SHAPES: dict[str, Callable[[float, float], float]] = {
    "constant": lambda progress, decay: 1.0,
    "cosine": lambda progress, decay: (1 + math.cos(math.pi * progress)) / 2,
    "linear": lambda progress, decay: 1 - progress,
    "trapezoidal": lambda progress, decay: min(1.0, (1 - progress) / decay),
}
"""Position between final rate (0) and peak rate (1), as a function of progress 0 … 1 after the warm-up."""


def learning_rate(schedule: ScheduleConfig, peak: float, step: int, steps: int) -> float:
    """The learning rate of step number `step`, 0 … steps - 1; both are counted from `schedule.begin`.

    Warm-up: peak · (step + 1) / warmup_steps. Then final + (peak - final) · shape(progress), where progress
    is 0 at the first step after the warm-up and 1 just after the last step.

    >>> learning_rate(ScheduleConfig(name="linear"), 1.0, 5, 10)
    0.5
    """
    begin = schedule.begin or 0
    step, steps = step - begin, steps - begin
    if step < schedule.warmup_steps:
        return peak * (step + 1) / schedule.warmup_steps
    progress = (step - schedule.warmup_steps) / max(1, steps - schedule.warmup_steps)
    share = SHAPES[schedule.name](min(progress, 1.0), schedule.decay_fraction)
    return peak * (schedule.final_fraction + (1 - schedule.final_fraction) * share)
