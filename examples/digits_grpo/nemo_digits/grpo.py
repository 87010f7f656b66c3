"""The training loop: sample a group of answers for each prompt, reward them, learn from the differences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nemo_digits import console
from nemo_digits.checkpoint import Checkpoints, Progress, restore
from nemo_digits.data import Floats, Ints, Prompts, batches, load_prompts
from nemo_digits.logger import MetricsLog
from nemo_digits.loss import advantages, clipped_loss
from nemo_digits.optimizer import Adam, clip
from nemo_digits.policy import Policy, pick
from nemo_digits.schema import MasterConfig
from nemo_digits.seeding import Purpose, generator
from nemo_digits.timer import StageTimer, TimeLimit


class Rollouts(NamedTuple):
    """A step's answers, flat: images (answers, digits, PIXELS), tokens and their log-probabilities (answers, digits).

    The answers of one prompt are neighbours; `rewards` is (prompts, group).
    """

    images: Floats
    tokens: Ints
    logprobs: Floats
    rewards: Floats


class Trainer:
    """One run: its data, policy and progress. `setup` makes it, `train` runs it."""

    def __init__(self, config: MasterConfig, log: MetricsLog, train: Prompts, validation: Prompts) -> None:
        self.config = config
        self.log = log
        self.train_prompts = train
        self.validation_prompts = validation.take(np.arange(min(config.grpo.max_val_samples, len(validation.answers))))
        seed, temperature = config.grpo.seed, config.policy.generation.temperature
        self.policy = Policy.initial(config.policy.hidden_size, temperature, seed)
        self.reference = Policy.initial(config.policy.hidden_size, temperature, seed)
        self.optimizer = Adam(config.policy.optimizer.kwargs, self.policy.weights)
        self.checkpoints = Checkpoints(config.checkpointing)
        self.progress = Progress()

    def resume(self) -> None:
        """Go on from the newest checkpoint in the checkpoint directory, if there is one."""
        newest = self.checkpoints.newest() if self.config.checkpointing.enabled else None
        if newest is not None:
            self.progress = restore(newest, self.policy, self.optimizer)

    def train(self) -> None:
        """Run until the epochs or steps are done or the time limit is near."""
        grpo, progress = self.config.grpo, self.progress
        limit = TimeLimit(self.config.checkpointing.checkpoint_must_save_by)
        if grpo.val_at_start and progress.total_steps == 0:
            self._validate(0)
        while progress.current_epoch < grpo.max_num_epochs and progress.total_steps < grpo.max_num_steps:
            console.epoch(progress.current_epoch + 1, grpo.max_num_epochs)
            if self._train_epoch(limit):
                return
            progress.current_epoch += 1
            progress.current_step = 0

    def _train_epoch(self, limit: TimeLimit) -> bool:
        """Run what is left of the current epoch; true when the whole run must end."""
        grpo, progress = self.config.grpo, self.progress
        epoch = batches(len(self.train_prompts.answers), grpo.num_prompts_per_step, grpo.seed, progress.current_epoch)
        for batch in epoch[progress.current_step :]:
            console.step(progress.current_step + 1, min(len(epoch), grpo.max_num_steps))
            timer = StageTimer()
            metrics = self._step(self.train_prompts.take(batch), timer)
            progress.current_step += 1
            progress.total_steps += 1
            progress.consumed_samples += len(batch)
            out_of_steps = progress.total_steps >= grpo.max_num_steps
            last = out_of_steps or (
                progress.current_epoch + 1 == grpo.max_num_epochs and progress.current_step == len(epoch)
            )
            out_of_time = self._finish_step(metrics, timer, limit, last=last)
            if out_of_time or out_of_steps:
                print(console.TIMEOUT if out_of_time else console.MAX_STEPS)
                return True
        return False

    def _finish_step(self, metrics: dict[str, float], timer: StageTimer, limit: TimeLimit, *, last: bool) -> bool:
        """Validate and save when it is time to, then print and log the step; true when the time is up."""
        grpo, step = self.config.grpo, self.progress.total_steps
        named = {f"train:{name}": value for name, value in metrics.items()}
        if (grpo.val_period > 0 and step % grpo.val_period == 0) or (grpo.val_at_end and last):
            with timer.stage("validation"):
                named["val:accuracy"] = self._validate(step)
        out_of_time = limit.step_done()
        if self.config.checkpointing.enabled and (
            last or out_of_time or step % self.config.checkpointing.save_period == 0
        ):
            with timer.stage("checkpointing"):
                self._save(named)
        total = timer.total()
        samples = grpo.num_prompts_per_step * grpo.num_generations_per_prompt
        console.training(metrics, timer.seconds, total, samples)
        self.log.write(step, "train", metrics)
        self.log.write(step, "timing/train", {"total_step_time": total, **timer.seconds})
        return out_of_time

    def _save(self, metrics: dict[str, float]) -> None:
        step, name = self.progress.total_steps, self.config.checkpointing.metric_name
        console.saving(step)
        if name is not None and name not in metrics:
            console.metric_missing(name, step)
        self.checkpoints.save(self.progress, metrics, self.policy, self.optimizer, self.config)

    def _validate(self, step: int) -> float:
        """Answer the validation prompts with the likeliest digits; returns the share of numbers that are right."""
        console.stage(f"Starting validation at step {step}")
        timer = StageTimer()
        images, answers = self.validation_prompts
        tokens = self.policy.greedy(images.reshape(-1, images.shape[-1])).reshape(answers.shape)
        accuracy = float(_reward(tokens, answers).mean())
        console.validation(accuracy, answers.shape[1], len(answers), timer.total())
        self.log.write(step, "validation", {"accuracy": accuracy, "avg_length": float(answers.shape[1])})
        return accuracy

    def _step(self, prompts: Prompts, timer: StageTimer) -> dict[str, float]:
        """One step of GRPO; returns its metrics."""
        grpo = self.config.grpo
        console.stage("Preparing batch")
        with timer.stage("generation"):
            rollouts = self._generate(prompts)
        print("▶ Processing rewards...,")
        console.stage("Computing advantages")
        with timer.stage("advantage_calculation"):
            advantage = advantages(
                rollouts.rewards, normalize=grpo.normalize_rewards, leave_one_out=grpo.use_leave_one_out_baseline
            )
        console.stage("Preparing for logprob inference")
        console.stage("Computing logprobs")
        with timer.stage("policy_and_reference_logprobs"):
            old, reference = (_logprobs(policy, rollouts) for policy in (self.policy, self.reference))
        console.stage("Preparing for training")
        console.stage("Training policy")
        with timer.stage("policy_training"):
            loss, norm = self._update(rollouts, old, reference, advantage.ravel())
        gap = old - rollouts.logprobs
        return {
            "loss": loss,
            "grad_norm": norm,
            "gen_kl_error": float((np.exp(gap) - gap - 1).mean()),
            "reward": float(rollouts.rewards.mean()),
            "mean_gen_tokens_per_sample": float(rollouts.tokens.shape[1]),
        }

    def _generate(self, prompts: Prompts) -> Rollouts:
        """Sample a group of answers for every prompt and reward each."""
        group = self.config.grpo.num_generations_per_prompt
        count, digits, pixels = prompts.images.shape
        rng = generator(self.config.grpo.seed, Purpose.SAMPLING, self.progress.total_steps)
        tokens, logprobs = self.policy.sample(prompts.images.reshape(-1, pixels), group, rng)
        answers = tokens.reshape(count, digits, group).swapaxes(1, 2)
        return Rollouts(
            np.repeat(prompts.images, group, axis=0),
            answers.reshape(-1, digits),
            logprobs.reshape(count, digits, group).swapaxes(1, 2).reshape(-1, digits),
            _reward(answers, prompts.answers[:, None, :]),
        )

    def _update(self, rollouts: Rollouts, old: Floats, reference: Floats, advantage: Floats) -> tuple[float, float]:
        """Pass once over the answers, one optimiser step a batch; returns the mean loss and gradient norm."""
        size = self.config.policy.train_global_batch_size
        order = generator(self.config.grpo.seed, Purpose.UPDATES, self.progress.total_steps).permutation(len(advantage))
        done = []
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            tokens = rollouts.tokens[rows].ravel()
            images = rollouts.images[rows].reshape(len(tokens), -1)
            # Every token of an answer shares the answer's advantage: only the whole number is rewarded.
            per_token = np.repeat(advantage[rows], rollouts.tokens.shape[1])
            seen = self.policy.forward(images)
            loss = clipped_loss(
                pick(seen.logprobs, tokens),
                old[rows].ravel(),
                reference[rows].ravel(),
                per_token,
                self.config.loss_fn,
            )
            gradient = self.policy.gradient(images, tokens, seen, loss.slope)
            norm = clip(gradient, self.config.policy.max_grad_norm)
            self.optimizer.update(self.policy.weights, gradient)
            done.append((loss.value, norm))
        value, norm = np.mean(done, axis=0)
        return float(value), float(norm)


def setup(config: MasterConfig, log: MetricsLog) -> Trainer:
    """Load the data, make the policy, resume when a checkpoint is there, and say how long that took."""
    timer = StageTimer()
    console.setting_up("data")
    train, validation = load_prompts(config.data)
    console.data_ready(len(train.answers), len(validation.answers))
    console.setting_up("model and training")
    with timer.stage("policy"):
        trainer = Trainer(config, log, train, validation)
        trainer.resume()
    console.setup_done(timer.seconds["policy"], timer.total())
    return trainer


def _reward(tokens: Ints, answers: Ints) -> Floats:
    """1 for an answer whose every digit is right, else 0; the digits are the last axis."""
    right: Floats = (tokens == answers).all(axis=-1).astype(np.float32)
    return right


def _logprobs(policy: Policy, rollouts: Rollouts) -> Floats:
    tokens = rollouts.tokens.ravel()
    images = rollouts.images.reshape(len(tokens), -1)
    return pick(policy.forward(images).logprobs, tokens).reshape(rollouts.tokens.shape)
