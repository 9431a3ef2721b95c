"""Programs for this repository; the product needs none of them."""
