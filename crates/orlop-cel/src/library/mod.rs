//! The function libraries, one module each.
//!
//! A library declares overloads with their implementations and enables macros. The caller selects the libraries of an
//! environment; [`kubernetes_libraries`] returns those of a Kubernetes version. Implementations receive arguments that
//! fit their signature and return `no such overload` otherwise.

mod address;
pub(crate) mod authorizer;
pub(crate) mod cidr;
pub(crate) mod encoders;
pub(crate) mod format;
pub(crate) mod ip;
pub(crate) mod jsonpatch;
pub(crate) mod lists;
pub(crate) mod lists_extension;
pub(crate) mod math;
pub(crate) mod named_format;
pub(crate) mod opaque;
pub(crate) mod optionals;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod standard;
pub(crate) mod strings;
pub(crate) mod timestamps;
pub(crate) mod url;

use crate::error::EvalError;
use crate::functions::Functions;
use crate::parser::Macros;

/// Limit on the bytes of a returned string. Requests are shorter.
const RESULT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Limit on the elements of a returned list. cel-go has only its cost limit, which is checked too late.
const RESULT_ELEMENTS_MAX: usize = 1_000_000;

/// Refuses a string before it is made.
pub(crate) fn limit_bytes(function: &str, bytes: usize) -> Result<(), EvalError> {
    if bytes > RESULT_BYTES_MAX {
        return Err(EvalError::Failed(format!("{function}: result exceeds {RESULT_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// Refuses a list before it is made.
pub(crate) fn limit_elements(function: &str, elements: usize) -> Result<(), EvalError> {
    if elements > RESULT_ELEMENTS_MAX {
        return Err(EvalError::Failed(format!("{function}: result exceeds {RESULT_ELEMENTS_MAX} elements")));
    }
    Ok(())
}

/// A library of functions and macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Comparisons between `int`, `uint` and `double`.
    CrossTypeComparisons,
    /// `charAt`, `split`, `join`, …; from version 1 `format` and `strings.quote`, from 3 `reverse`, from 4 `format`
    /// without the separators of a locale.
    Strings {
        /// The version as cel-go counts it; Kubernetes uses 0 and 2.
        version: u32,
    },
    /// Kubernetes' `isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`.
    Lists,
    /// Kubernetes' `includes`.
    Includes,
    /// `slice`, `flatten`, `sort`, `sortBy`, `distinct`, `reverse`, `lists.range`.
    ListsExtension,
    /// `sets.contains`, `sets.equivalent`, `sets.intersects`.
    Sets,
    /// `find`, `findAll`.
    Regex,
    /// `url`, `isURL` and accessors.
    Urls,
    /// `quantity`, `isQuantity` and arithmetic.
    Quantity,
    /// `ip`, `isIP` and predicates.
    Ip,
    /// `cidr`, `isCIDR`, containment.
    Cidr,
    /// `format.named` and the named formats with `validate`.
    NamedFormats,
    /// `semver`, `isSemver` and comparison.
    Semver,
    /// Optional values and their syntax; `first`, `last`, `optional.unwrap`.
    Optionals,
    /// Macros with two variables: `all(i, x, …)`, `transformList`, `transformMap`, …
    TwoVariables,
    /// `cel.bind`.
    Bindings,
    /// `base64.encode`, `base64.decode`.
    Encoders,
    /// `math.least`, `math.abs`, bit operations, …
    Math,
    /// `authorizer.group(…).resource(…).check(…)`.
    Authorizer,
    /// `fieldSelector`, `labelSelector` on authorization checks.
    AuthorizerSelectors,
    /// `jsonpatch.escapeKey`.
    JsonPatch,
}

impl Library {
    /// Every library, in its newest version.
    pub const ALL: [Self; 21] = [
        Self::CrossTypeComparisons,
        Self::Strings { version: 4 },
        Self::Lists,
        Self::Includes,
        Self::ListsExtension,
        Self::Sets,
        Self::Regex,
        Self::Urls,
        Self::Quantity,
        Self::Ip,
        Self::Cidr,
        Self::NamedFormats,
        Self::Semver,
        Self::Optionals,
        Self::TwoVariables,
        Self::Bindings,
        Self::Encoders,
        Self::Math,
        Self::Authorizer,
        Self::AuthorizerSelectors,
        Self::JsonPatch,
    ];

    pub(crate) fn declare(self, functions: &mut Functions, macros: &mut Macros) {
        match self {
            Self::CrossTypeComparisons => standard::declare_cross_type(functions),
            Self::Strings { version } => strings::declare(functions, version),
            Self::Lists => lists::declare(functions),
            Self::Includes => lists::declare_includes(functions),
            Self::ListsExtension => {
                macros.sort_by = true;
                lists_extension::declare(functions);
            }
            Self::Sets => sets::declare(functions),
            Self::Regex => regex::declare(functions),
            Self::Urls => url::declare(functions),
            Self::Quantity => quantity::declare(functions),
            Self::Ip => ip::declare(functions),
            Self::Cidr => cidr::declare(functions),
            Self::NamedFormats => named_format::declare(functions),
            Self::Semver => semver::declare(functions),
            Self::Optionals => {
                macros.optionals = true;
                optionals::declare(functions);
            }
            Self::TwoVariables => macros.two_variables = true,
            Self::Bindings => macros.bindings = true,
            Self::Encoders => encoders::declare(functions),
            Self::Math => {
                macros.math = true;
                math::declare(functions);
            }
            Self::Authorizer => authorizer::declare(functions),
            Self::AuthorizerSelectors => authorizer::declare_selectors(functions),
            Self::JsonPatch => jsonpatch::declare(functions),
        }
    }
}

/// The libraries that Kubernetes 1.`minor` gives every expression.
pub(crate) fn kubernetes_libraries(minor: u32) -> Vec<Library> {
    let strings = Library::Strings { version: if minor >= 29 { 2 } else { 0 } };
    let mut libraries = vec![Library::Urls, Library::Regex, Library::Lists, strings];
    let introduced = [
        (27, Library::Authorizer),
        (28, Library::CrossTypeComparisons),
        (28, Library::Optionals),
        (28, Library::Quantity),
        (29, Library::Sets),
        (30, Library::Ip),
        (30, Library::Cidr),
        (31, Library::NamedFormats),
        (31, Library::AuthorizerSelectors),
        (32, Library::TwoVariables),
        (33, Library::Semver),
        (34, Library::ListsExtension),
        (37, Library::Includes),
    ];
    libraries.extend(introduced.into_iter().filter(|(since, _)| minor >= *since).map(|(_, library)| library));
    libraries
}
