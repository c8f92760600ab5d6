"""A training's utilization of its GPUs, as reported in publications."""

from dataclasses import dataclass

from ringside.sim.workload.decoder import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """``samples`` sequences per step of ``step_s`` seconds on ``gpus`` GPUs of ``peak`` FLOP/s each.

    FLOPs are the decoder's (`ringside.sim.workload.decoder`), with the whole square of scores unless
    ``causal``.
    """

    decoder: Decoder
    samples: int
    step_s: float
    gpus: int
    peak: float
    checkpointing: str = "none"
    causal: bool = False

    @property
    def samples_per_s(self) -> float:
        """Sequences per second, of all GPUs together."""
        return self.samples / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, of all GPUs together."""
        return self.samples_per_s * self.decoder.sequence

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: forward's and backward's share of the peak."""
        return self._share(self.decoder.training_flops(causal=self.causal))

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: the share including checkpointing's recomputation."""
        recomputed = self.decoder.recomputed_flops(self.checkpointing, causal=self.causal)
        return self._share(self.decoder.training_flops(causal=self.causal) + recomputed)

    def gpu_hours(self, tokens: float) -> float:
        """Return the GPU-hours for ``tokens`` tokens."""
        return tokens / self.tokens_per_s * self.gpus / 3600

    def _share(self, flops: float) -> float:
        return flops * self.samples_per_s / (self.gpus * self.peak)
