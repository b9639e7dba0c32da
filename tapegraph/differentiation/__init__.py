"""From a program to gradients: the choice of the engine, tangent rules, stored gradients."""
