"""What answers an agent's turns within a rollout: a calculator, environments of the verifiers package."""
