from .errors import InputError as InputError
from .errors import MemoryLimitError as MemoryLimitError
from .models.dual.estimator import DualPPCA as DualPPCA
from .models.kernel_pca.estimator import KernelPCA as KernelPCA
from .models.mixture.estimator import MixtureOfPPCA as MixtureOfPPCA
from .models.pca.estimator import PCA as PCA
from .models.pcr.estimator import PCR as PCR
from .models.ppca.estimator import PPCA as PPCA
from .models.ppca.estimator import FactorAnalysis as FactorAnalysis
from .results.store import load as load
from .results.store import load_model as load_model
from .sources import open_genotypes as open_genotypes
from .sources import open_source as open_source

__version__: str
