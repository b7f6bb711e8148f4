"""The recognition pipeline: image, features, object models, classifier, verification (Cachier, 1.1).

Every tier and the experiments use it. `object_recognizer` is the entry point.
May import: the root of `common`, and the messages of `protos` (only in `codec`).
"""
