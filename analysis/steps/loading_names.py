"""Names of annotated ranges that mean that a step waits for its data."""

from __future__ import annotations

from typing import Final

# Between words: `_`, `-`, blanks, or nothing (LoadBatch, loadbatch). Case does not matter.
_GAP: Final = "[ _-]*"
_LOADED: Final = f"((mini{_GAP})?batch(es)?|data|inputs?|samples?)"
_NAMES: Final = (
    "data|inputs?",
    "load(er|ing)?|fetch(ing)?",
    # data loading, data_loader, dataload, input pipeline, batch loading, dataloader next
    f"(data|(mini{_GAP})?batch(es)?|inputs?){_GAP}(load(er|ing)?|fetch(ing)?|iter(ator)?|pipeline|wait)({_GAP}(next|iter(ator)?|wait))?",
    # load batch, fetch data, get next batch, next batch, wait for data
    # WAIT_FOR_DATA is what Horovod calls the wait for a tensor of the gradients.
    f"(load(ing)?|fetch(ing)?|get|next|read(ing)?|(?-i:[Ww]ait)({_GAP}for)?)({_GAP}(the|next))*{_GAP}{_LOADED}",
    f"get{_GAP}next",
)

DATA_LOADING: Final = r"(?i)^enumerate\(DataLoader\)|^(## *)?(" + "|".join(_NAMES) + r")[ #_:.-]*[0-9]*( *##)?$"
"""A regular expression for the whole name: the names that docs/definitions.md lists, a number at the end, and PyTorch's own name."""
