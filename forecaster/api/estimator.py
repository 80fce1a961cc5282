"""A model with the manners of scikit-learn, which is not imported."""

from functools import cache, partial, wraps
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, Unpack

from forecaster import options
from forecaster.api.fits import fit
from forecaster.api.models import Forecaster
from forecaster.api.requests import refuse
from forecaster.errors import ConfigError
from forecaster.options import DataOptions, public, unchecked
from forecaster.panel.findings import did_you_mean, listing
from forecaster.panel.names import without

if TYPE_CHECKING:
    from forecaster.forecast.forecast import Forecast
else:
    from forecaster.lazy import Forecast


class Estimator:
    """A forecaster with the manners of scikit-learn: options of `fc.fit` as parameters, checked by `fit`.

    Of those options it has the ones that say what is fitted and how. They are stored as given.

    Example:
        >>> Estimator(horizon=28, known=["price"]).fit("sales.csv").predict().frame   # doctest: +SKIP
    """

    model_: Forecaster
    """The fitted model: backtest, detect, explain, save."""

    @partial(public, check=unchecked)
    def __init__(
        self,
        horizon: options.Horizon = None,
        *,
        config: options.Settings = None,
        preset: options.Preset = None,
        budget: options.Budget = None,
        experts: options.Experts = None,
        select: options.Select = False,
        lower: options.Lower = None,
        upper: options.Upper = None,
        integer: options.Integer = False,
        tracking: options.Tracking = True,
        quiet: options.Quiet = False,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ):
        given = {name: value for name, value in locals().items() if name in _defaults()}
        vars(self).update(_defaults() | given)
        self.set_params(**data_options)

    def __repr__(self) -> str:
        own, usual = self.get_params(), _defaults()
        given = [name for name in own if repr(own[name]) != repr(usual[name])]
        return f"Estimator({', '.join(f'{name}={own[name]!r}' for name in given)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Returns the parameters by name; `deep` changes nothing, for none has parameters of its own."""
        return {name: getattr(self, name) for name in _defaults()}

    def set_params(self, **params: Any) -> "Estimator":
        """Stores some parameters, and returns the estimator.

        Raises:
            ConfigError: there is no such parameter.
        """
        known = [*_defaults()]
        for name in without(params, known):
            near = did_you_mean(name, known) or f"; the parameters are {listing(known)}"
            raise ConfigError(f"Estimator: no parameter {name!r}{near}")
        vars(self).update(params)
        return self

    @public
    def fit(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
    ) -> "Estimator":
        """Fits the model to a table, and returns the estimator.

        Raises:
            ConfigError: a parameter is wrong, or a class column is declared.
            DataError: the table cannot be understood.
            FitError: the loss is not finite.
        """
        params = self.get_params()
        refuse({"label": params["label"]}, "an Estimator", "fc.fit returns a classifier")
        self.model_ = fit(data, future=future, covariates=covariates, **params)
        self._tables = data, future, covariates
        return self

    @wraps(Forecaster.predict)
    def predict(self, data: object = None, **given: Any) -> "Forecast":
        if not hasattr(self, "model_"):
            raise ConfigError("Estimator: expected a fitted one; call fit(table) first")
        if data is None:
            data, future, covariates = self._tables
            given = {"future": future, "covariates": covariates} | given
        return self.model_.predict(data, **{"device": self.get_params()["device"]} | given)


@cache
def _defaults() -> dict[str, Any]:
    """Returns the default of each parameter, by its name."""
    return {name: part.default for name, part in signature(Estimator).parameters.items()}


def _optional_table() -> Signature:
    """Returns the signature of `Forecaster.predict` where None is the table of the fit, with its other tables."""
    own, data, *others = signature(Forecaster.predict).parameters.values()
    named = [part.replace(kind=Parameter.KEYWORD_ONLY) for part in others]
    return Signature([own, data.replace(default=None), *named])


Estimator.predict.__signature__ = _optional_table()  # type: ignore[attr-defined]
