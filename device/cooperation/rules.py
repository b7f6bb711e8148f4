"""How patient a device is with its neighbours. No setting: nobody can judge these better at his desk."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CooperationRules:
    """Times and limits.

    Attributes
    ----------
    model_timeout_s : float
        Longest wait for a model of one peer.
    holders_asked : int
        Peers that are asked for one model before a tier is.
    read_timeout_s : float
        Longest wait for what the store knows of a model.
    patience_s : float
        Longest wait for a model that another device is said to fetch.
    poll_s : float
        Time between two looks whether that one has it.
    rest_s, longest_rest_s : float
        A peer that failed is not asked for models for so long; each further failure doubles it.
    life_s, renew_s : float
        An entry that says who has a model lives so long, and is renewed so often.
    merge_s : float
        Steps are counted in the store together, so often.
    popularity_age_s : float
        Known popularities are used again for so long.
    largest_answer_bytes : int
        A longer answer of a peer is not looked at.
    """

    model_timeout_s: float = 2.0
    holders_asked: int = 2
    read_timeout_s: float = 1.0
    patience_s: float = 3.0
    poll_s: float = 0.1
    rest_s: float = 5.0
    longest_rest_s: float = 120.0
    life_s: float = 3600.0
    renew_s: float = 1200.0
    merge_s: float = 1.0
    popularity_age_s: float = 5.0
    largest_answer_bytes: int = 4 * 2**20
