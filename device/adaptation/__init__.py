"""Model adaptation: a device learns from the photos that it takes (Cachier dissertation, 5.1.1.1).

The dissertation updates the model with the features of newly classified images, so that it becomes "more
sensitive to the current lighting and environment conditions", and shares it. It does not say how to prevent
damage by a wrong or malicious update. Here the *vouched model*, which is the one of the catalogue, is never
changed. An adapted view (`adapted_view`) contains other descriptors for existing features of the model; it
has no geometry and no new features. It is learned from a photo. Own and shared views are checked feature by
feature (`learning`). Views are used only for photos that the vouched models do not recognise, and an answer
is accepted only if the vouched model confirms it (`evidence`). Thus a shared view never changes an answer
that exists without it. Devices use the package through `adapter`.
May import: `common.recognition`, `common.errors` and `protos`.
"""
