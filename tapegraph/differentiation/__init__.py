"""From a program to gradients: tangent rules, slopes, backward, stored gradients."""
