"""metricfit inside other training libraries; each module imports its library, and nothing here imports a module.

=============================================  ==================  ===============================================
module                                         extra               holds
=============================================  ==================  ===============================================
:mod:`metricfit.integrations.lightning`        ``lightning``       ``TemperatureAnnealing``
:mod:`metricfit.integrations.huggingface`      ``huggingface``     ``compute_loss_func``, ``TemperatureAnnealing``
:mod:`metricfit.integrations.skorch`           ``skorch``          ``TemperatureAnnealing``, ``two_columns``
:mod:`metricfit.integrations.boosting`         ``boost``           ``objective``, ``eval_metric``, ``probabilities``
:mod:`metricfit.integrations.shap`             ``shap``            ``explanation``
:mod:`metricfit.integrations.torchmetrics`     ``torchmetrics``    ``ConfusionMetric``
:mod:`metricfit.integrations.tracking`         --                  ``TensorBoard``, ``MLflow``, ``WandB``
:mod:`metricfit.integrations.mlflow`           --                  ``save_model``, ``log_model``
=============================================  ==================  ===============================================
"""

__all__: list[str] = []
