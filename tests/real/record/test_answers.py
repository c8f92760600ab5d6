"""An operator that is answered from memory returns what PyTorch's fake mode returns."""

from contextlib import contextmanager

import pytest

torch = pytest.importorskip("torch")

from ringside.real.record.rules import regions  # noqa: E402
from ringside.real.record.script import answers, mode, values  # noqa: E402

pytestmark = pytest.mark.slow

aten = torch.ops.aten


def calls():
    """Return operators with their arguments, made anew."""
    x = torch.empty(4, 6, 8, device="cuda", dtype=torch.bfloat16)
    w = torch.empty(8, 8, device="cuda", dtype=torch.bfloat16).t()
    flag, pairs = torch.empty(6, 8, dtype=torch.bool, device="cuda"), torch.empty(3, 4, 2, device="cuda")
    norm = torch.empty(8, device="cuda")
    complex_ = torch.view_as_complex(pairs)
    return [
        (aten.mm.default, (x.select(0, 0), w), {}),
        (aten.add.Tensor, (x.transpose(0, 1), x.transpose(0, 1)), {"alpha": 2}),
        (aten.mul.Tensor, (x, 2), {}),
        (aten.mul.Tensor, (x, 2.5), {}),
        (aten.mul_.Tensor, (x.narrow(0, 1, 3), 2), {}),
        (aten.view.default, (x, [24, 8]), {}),
        (aten.slice.Tensor, (x, 1, 2, 5), {}),
        (aten.split.Tensor, (x, 3, 1), {}),
        (aten.detach.default, (w,), {}),
        (aten._conj.default, (complex_,), {}),
        (aten.clone.default, (complex_.conj(),), {}),
        (aten.sum.dim_IntList, (flag, [0], True), {}),
        (aten._to_copy.default, (x,), {"dtype": torch.float32}),
        (aten.native_layer_norm.default, (x.float(), [8], norm, norm, 1e-5), {}),
        (aten._foreach_mul.Scalar, ([norm, pairs], 0.5), {}),
        (aten._foreach_mul_.Scalar, ([norm, pairs], 0.5), {}),
        (aten.add.out, (norm, norm), {"out": torch.empty(8, device="cuda")}),
        (aten.new_empty_strided.default, (x, [3, 4], [8, 1]), {}),
        (aten.empty_like.default, (w,), {"device": torch.device("cpu")}),
    ]


@contextmanager
def device():
    """Make tensors of a device that is not there: without autograd, which would ask it."""
    with torch._C._AutoDispatchBelowAutograd(), values.FAKE:
        yield


def facts(result, args):
    """Return all that can be told of a result: of tensors also which share storages."""
    known = [one.untyped_storage()._cdata for one in torch.utils._pytree.tree_leaves(args) if is_fake(one)]
    said = []
    for one in torch.utils._pytree.tree_leaves(result):
        if not is_fake(one):
            said.append(one)
            continue
        storage = one.untyped_storage()
        place = known.index(storage._cdata) if storage._cdata in known else None
        shape = one.shape, one.stride(), one.storage_offset(), one.dtype, one.device
        flags = one.is_conj(), one.is_neg(), one.requires_grad
        said.append((type(one), *shape, *flags, storage.nbytes(), place, sorted(vars(one))))
    return type(result), said


def is_fake(one):
    return isinstance(one, torch.Tensor)


def test_an_answer_from_memory_is_that_of_the_fake_mode():
    with device():
        first, second = calls(), calls()
    for (func, args, kwargs), (_, other_args, other_kwargs) in zip(first, second, strict=True):
        with device():
            result, expected = func(*args, **kwargs), func(*other_args, **other_kwargs)
        asked, again = answers.question(func, args, kwargs), answers.question(func, other_args, other_kwargs)
        assert asked.key == again.key
        written = mode._written(func, args, kwargs, result)
        answers.remember(asked, func, result, None, written)
        answer, others = answers.ANSWERS[again.key].again(again.fakes)
        assert [regions.form(one) for one in others] == [regions.form(one) for one in written], func
        assert facts(answer, (other_args, other_kwargs)) == facts(expected, (other_args, other_kwargs)), func


def test_what_differs_in_its_result_is_another_question():
    with device():
        x, half = torch.empty(4, 6, device="cuda"), torch.empty(4, 6, device="cuda", dtype=torch.half)
        calls = [
            (x, 1),
            (x, 1.0),
            (x, True),
            (half, 1),
            (x.t(), 1),
            (x.narrow(0, 0, 2), 1),
            (x.narrow(0, 2, 2), 1),
        ]
    keys = {answers.question(aten.add.Tensor, args, {}).key for args in calls}
    assert len(keys) == len(calls)


def test_rates_of_what_changes_its_arguments_alone_are_no_part_of_a_question():
    with device():
        x = torch.empty(4, 6, device="cuda")
    for func, are_one in (
        (aten.mul.Tensor, False),
        (aten.mul_.Tensor, True),
        (aten._foreach_mul_.Scalar, True),
    ):
        some = [x] if "foreach" in str(func) else x
        keys = {answers.question(func, (some, number), {}).key for number in (0.5, 0.25)}
        assert (len(keys) == 1) == are_one, func
        assert answers.question(func, (some, 2), {}).key not in keys


def test_storages_that_operators_change_are_not_remembered():
    with device():
        x = torch.empty(4, 6, device="cuda")
    assert answers.question(aten.resize_.default, (x, [2, 2]), {}) is None
    assert answers.question(aten.set_.source_Tensor, (x, x), {}) is None
    assert answers.question(aten.add.Tensor, (x, torch.ones(6)), {}) is None
