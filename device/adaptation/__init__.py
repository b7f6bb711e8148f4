"""Model adaptation: what a device learns from the photos that it takes (Cachier dissertation, 5.1.1.1).

The dissertation updates the model with the features of newly classified images, so that it becomes "more
sensitive to the current lighting and environment conditions", and shares it. It leaves open how a wrong or
malicious update is kept from doing harm. Here the vouched model is never changed. An adapted view
(`adapted_view`) holds other descriptors for features that the model has: no geometry, nothing new. It is
learned from a photo and checked feature by feature, own or shared (`learning`). Views are asked only about
photos that the vouched models leave unknown, and believed only if the vouched model confirms (`evidence`): a
shared view never changes an answer that is there without it. `adapter` is the front door for the device.
May import: `common.recognition`, `common.errors` and `protos`.
"""
