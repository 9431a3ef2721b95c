"""The tests' settings with the features that FEATURES of the environment names, instead of the product's."""

import os

from tests import settings as product

globals().update({name: value for name, value in vars(product).items() if name.isupper()})
FEATURES = os.environ["FEATURES"].split()
INSTALLED_APPS = [name for name in product.INSTALLED_APPS if name not in product.FEATURES] + FEATURES
