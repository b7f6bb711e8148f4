"""The numbers that bound adaptation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdaptationRules:
    """What is learned, kept and believed.

    Attributes
    ----------
    min_confidence : float
        Of an answer whose photo is learned from: 0.7 are 24 inliers without a rival.
    radius_px : float
        Farthest that a feature of the photo may lie from where the homography puts a vouched feature.
    max_bits : int
        Farthest that an adapted descriptor may be from the vouched one, in bits of 256.
    min_features, max_features : int
        Of an adapted view.
    new_bits : int
        A descriptor that is nearer than this to what is there already adds nothing.
    min_new : float
        Part of a view's descriptors that must add something.
    own_views, shared_views : int
        Kept per object: learned here, and by others. Apart, so that a flood of shared ones displaces no own.
    objects : int
        Objects with adapted views, at most; those unused for longest are forgotten.
    max_items : int
        Shared views of one object that are looked at, drawn at random from as many as there are.
    max_item_bytes : int
        Longer ones are not even parsed.
    lifetime_s : float
        Shared views vanish after this time: the light changes.
    candidates : int
        Views that are verified at a second look, at most. Measured: 2 instead of 6 lose one of 16 photos
        gained, and save a third of the time.
    max_log10_false_alarms : float
        Of the agreement between photo and vouched model (`evidence`), to learn and to believe a view.
        The best of 8,000 homographies between unrelated exhibits came to 9.3.
    """

    min_confidence: float = 0.7
    radius_px: float = 5.0
    max_bits: int = 64
    min_features: int = 20
    max_features: int = 300
    new_bits: int = 16
    min_new: float = 0.25
    own_views: int = 3
    shared_views: int = 3
    objects: int = 200
    max_items: int = 16
    max_item_bytes: int = 16 * 1024
    lifetime_s: float = 3600.0
    candidates: int = 2
    max_log10_false_alarms: float = -2.0
