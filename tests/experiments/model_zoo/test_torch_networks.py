"""Language models of the proportions of known ones: which words a score depends on."""

import pytest


@pytest.mark.system
@pytest.mark.needs("zoo")
@pytest.mark.parametrize("shrink", [1, 2, 5])
@pytest.mark.parametrize(("encoders", "decoders", "depend"), [(1, 0, 4), (0, 1, 1), (1, 1, 4)])
def test_a_decoder_sees_earlier_words_and_an_encoder_all(
    encoders: int, decoders: int, depend: int, shrink: int
) -> None:
    import torch  # optional

    from nearsight.experiments.model_zoo.torch_networks import LanguageModel, Proportions

    torch.manual_seed(1)
    model = LanguageModel(Proportions(encoders, decoders, 768, 100, 50), shrink).eval()
    words = torch.tensor([[1, 2, 3, 4], [1, 2, 3, 5]])
    with torch.no_grad():
        first, second = model(words)
    assert first.shape == (4, 50 // shrink)
    assert int(((first - second).abs() > 1e-6).any(dim=1).sum()) == depend
