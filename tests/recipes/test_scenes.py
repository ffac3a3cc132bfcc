"""The scenes recipe: captions follow from drawings, words are tokens, facts are found, and a run resumes exactly."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline

from recipes.scenes.agreement import Content, Item, agreement_of, read_caption, ready_detector, total_agreement
from recipes.scenes.autoencoder import AutoencoderPlan, encode_mean, new_autoencoder, refine_decoder
from recipes.scenes.diffusion import Denoiser, DiffusionPlan, new_scheduler, new_unet, train_denoiser
from recipes.scenes.drawing import BACKGROUNDS, COLOURS, SIDE, Scene, Thing, caption_words, draw, draw_up_scenes
from recipes.scenes.latents import EncodedScenes, tokens_of
from recipes.scenes.measure import draw_losses, losses_in
from recipes.scenes.text import MAX_TOKENS, merges_that_build, new_text_encoder, new_tokenizer
from recipes.scenes.train import COMMITTED


def _scene(*things: Thing, relations: tuple[str, ...] = (), texture: str = "plain", sizes: bool = False) -> Scene:
    return Scene(things, relations, "green", texture, 0.3, 8.0, (0.0, 0.0), 1.0, 5, sizes)


def _content_of(scene: Scene) -> Content:
    items = tuple(Item(thing.shape, thing.colour, thing.x, thing.y) for thing in scene.things)
    return Content(items, scene.background)


def test_a_caption_names_what_is_drawn():
    star = Thing("star", "red", "large", 32.0, 16.0, 12.0, 0.0)
    ring = Thing("ring", "blue", "small", 30.0, 46.0, 8.0, 0.0)
    assert _scene(star).caption == "a red star on a green background"
    assert _scene(replace(ring, colour="orange")).caption == "an orange ring on a green background"
    both = _scene(star, ring, relations=("above",), texture="dotted", sizes=True)
    assert both.caption == "a large red star above a small blue ring on a dotted green background"


def test_captions_hold_in_their_own_scenes():
    for scene in draw_up_scenes(300, seed=1):
        found = agreement_of(scene.caption, _content_of(scene))
        assert found.captions == 1
        assert found.held == found.named == 3 * len(scene.things)


def test_things_stay_in_the_picture_and_apart():
    for scene in draw_up_scenes(300, seed=2):
        for index, thing in enumerate(scene.things):
            assert min(thing.x, thing.y) >= thing.radius
            assert max(thing.x, thing.y) <= SIDE - thing.radius
            for other in scene.things[index + 1 :]:
                distance = math.hypot(thing.x - other.x, thing.y - other.y)
                assert distance > 0.95 * (thing.radius + other.radius)


def test_the_same_seed_draws_the_same_pictures():
    first, again, other = (draw(draw_up_scenes(6, seed)) for seed in (3, 3, 4))
    assert first.shape == (6, 3, SIDE, SIDE)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.abs().max() <= 1


def test_a_picture_does_not_depend_on_its_batch():
    scenes = draw_up_scenes(5, seed=5)
    assert torch.allclose(draw(scenes)[3], draw(scenes[3:4])[0], atol=1e-5)


@pytest.mark.parametrize("shape", ["circle", "square", "triangle", "star", "cross"])
def test_a_thing_has_its_colour_in_the_middle_and_the_background_has_its_own(shape: str):
    picture = draw([_scene(Thing(shape, "red", "large", 32.0, 32.0, 13.0, 0.0))])[0] / 2 + 0.5
    assert (picture[:, 30:34, 30:34].mean(dim=(1, 2)) - torch.tensor(COLOURS["red"])).abs().max() < 0.25
    assert (picture[:, :8].mean(dim=(1, 2)) - torch.tensor(BACKGROUNDS["green"])).abs().max() < 0.15


def test_a_ring_shows_the_background_in_the_middle():
    picture = draw([_scene(Thing("ring", "red", "large", 32.0, 32.0, 13.0, 0.0))])[0] / 2 + 0.5
    assert (picture[:, 31:33, 31:33].mean(dim=(1, 2)) - torch.tensor(BACKGROUNDS["green"])).abs().max() < 0.15


def test_every_word_is_one_token_and_captions_round_trip():
    tokenizer = new_tokenizer()
    tokens = [tokenizer(word).input_ids for word in caption_words()]
    assert all(len(ids) == 3 for ids in tokens)
    assert len({ids[1] for ids in tokens}) == len(caption_words())
    for scene in draw_up_scenes(200, seed=6):
        ids = tokenizer(scene.caption).input_ids
        assert len(ids) == len(scene.caption.split()) + 2 <= MAX_TOKENS
        assert tokenizer.decode(ids, skip_special_tokens=True) == scene.caption


def test_other_text_is_read_letter_by_letter():
    tokenizer = new_tokenizer()
    ids = tokenizer("über 7").input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "über 7"


def test_merges_build_words_that_share_letters():
    assert merges_that_build(("of", "on")) == [("o", "f</w>"), ("o", "n</w>")]


def test_a_caption_is_read_with_or_without_sizes():
    items = (Item("star", "red"), Item("ring", "blue"))
    expected = Content(items, "gray", ("left of",))
    assert read_caption("a small red star left of a large blue ring on a striped gray background") == expected
    assert read_caption("a red star left of a blue ring on a gray background") == expected


@pytest.mark.parametrize(
    ("seen", "held", "relations"),
    [
        ((Item("star", "red", 10, 30), Item("ring", "blue", 40, 30)), 6, 1),
        ((Item("star", "red", 40, 30), Item("ring", "blue", 10, 30)), 5, 0),
        ((Item("star", "blue", 10, 30), Item("ring", "red", 40, 30)), 3, 0),
        ((Item("ring", "blue", 40, 30),), 3, 0),
        ((), 1, 0),
    ],
)
def test_facts_are_counted_for_the_best_pairing(seen: tuple[Item, ...], held: int, relations: int):
    caption = "a red star left of a blue ring on a gray background"
    found = agreement_of(caption, Content(seen, "gray"))
    assert (found.held, found.relations, found.named) == (held, relations, 6)


def test_the_detector_finds_what_is_drawn(tmp_path: Path):
    scenes = draw_up_scenes(24, seed=9)
    captions = [scene.caption for scene in scenes]
    detector = ready_detector(tmp_path)
    assert total_agreement(captions, draw(scenes), detector).share > 0.97
    assert total_agreement(captions[1:] + captions[:1], draw(scenes), detector).share < 0.35


def test_the_scheduler_has_the_settings_of_stable_diffusion():
    config = new_scheduler().config
    assert (config.beta_start, config.beta_end, config.beta_schedule) == (0.00085, 0.012, "scaled_linear")
    assert (config.clip_sample, config.set_alpha_to_one, config.steps_offset) == (False, False, 1)


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path):
    tokenizer = new_tokenizer()
    captions = [scene.caption for scene in draw_up_scenes(16, seed=7)]
    latents = torch.randn(16, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    data = EncodedScenes(latents.half(), tokens_of(captions, tokenizer))

    def train(folder: str, interrupted_at: int | None = None) -> Denoiser:
        torch.manual_seed(0)
        text_encoder = new_text_encoder(tokenizer, width=16, layers=1)
        denoiser = Denoiser(new_unet((16, 16, 16), 16), text_encoder)
        plan = DiffusionPlan(batch=2, steps=4, save_every=2)
        seen = []

        def stop(average: Denoiser) -> None:
            seen.append(average)
            if len(seen) == interrupted_at:
                raise KeyboardInterrupt

        return train_denoiser(denoiser, data, tokens_of([""], tokenizer), plan, tmp_path / folder, stop)

    unbroken = train("unbroken")
    with pytest.raises(KeyboardInterrupt):
        train("broken", interrupted_at=1)
    resumed = train("broken")
    for name, weight in unbroken.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


def test_the_refined_decoder_reads_the_same_latents(tmp_path: Path):
    torch.manual_seed(0)
    autoencoder = new_autoencoder((8, 8, 8))
    pictures = draw(draw_up_scenes(2, seed=8))
    latents = encode_mean(autoencoder, pictures)
    before = autoencoder.decode(latents).sample
    refine_decoder(autoencoder, AutoencoderPlan(batch=2, steps=2, warm_up=1), tmp_path)
    assert torch.equal(encode_mean(autoencoder, pictures), latents)
    assert not torch.equal(autoencoder.decode(latents).sample, before)


def test_the_committed_pipeline_opens_and_draws_64_pixels():
    files = [path for path in COMMITTED.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 16 * 10**6
    pipeline = StableDiffusionPipeline.from_pretrained(COMMITTED)
    pipeline.set_progress_bar_config(disable=True)
    image = pipeline("a red star above a blue ring on a green background", num_inference_steps=2, guidance_scale=5)
    assert image.images[0].size == (SIDE, SIDE)
    assert pipeline.tokenizer.get_vocab() == new_tokenizer().get_vocab()


def test_losses_of_several_runs_are_read_from_what_they_printed(tmp_path: Path):
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text("Loading\ndiffusion step=100 loss=0.5 samples/s=9.0\ndiffusion step=200 loss=0.25 samples/s=9.0\n")
    second.write_text("diffusion step=200 loss=0.2 samples/s=9.0\nautoencoder step=300 loss=0.1\n")
    assert losses_in([first, second]) == {100: 0.5, 200: 0.2}
    draw_losses(losses_in([first]), tmp_path / "losses.png")
    assert (tmp_path / "losses.png").stat().st_size > 1000
