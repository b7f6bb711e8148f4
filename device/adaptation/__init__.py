"""Model adaptation: what a device learns from the photos that it takes (Cachier dissertation, 5.1.1.1).

The dissertation updates the model with the features of newly classified images, so that it becomes "more
sensitive to the current lighting and environment conditions", and shares it. It leaves open what keeps a
wrong or malicious update from spoiling everybody's model. Here the vouched model is never changed:

- `AdaptedView`: other descriptors for features that the vouched model has. No geometry, nothing new.
- `learn`: makes one from a recognised photo. `refusal`: checks one, own or shared, feature by feature.
- `SecondLook`: asks the adapted views only about photos that the vouched models leave unknown, and believes
  them only if the vouched model confirms (`evidence`). So nobody, whatever he shares, changes an answer that
  is there without adaptation, and none is added that only adapted descriptors speak for.
- `AdaptedViews`: which ones are kept, bounded. `Adapter`: all of it behind one lock, for the device.
"""
