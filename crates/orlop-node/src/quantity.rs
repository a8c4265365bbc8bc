//! Resource quantities as numbers.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffixes and their factors in thousandths.
const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024e3),
    ("Mi", 1048576e3),
    ("Gi", 1073741824e3),
    ("Ti", 1099511627776e3),
    ("Pi", 1125899906842624e3),
    ("Ei", 1_152_921_504_606_847e6),
    ("n", 1e-6),
    ("u", 1e-3),
    ("m", 1.0),
    ("k", 1e6),
    ("M", 1e9),
    ("G", 1e12),
    ("T", 1e15),
    ("P", 1e18),
    ("E", 1e21),
];

/// Returns a quantity in thousandths, rounded up; 0 for one that is malformed, which validation has refused.
pub(crate) fn milli(quantity: &Quantity) -> i64 {
    let text = quantity.0.trim();
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = suffix.unwrap_or((text, 1e3));
    (number.parse::<f64>().unwrap_or(0.0) * factor).ceil() as i64
}

/// Resources by name.
pub(crate) type Resources = BTreeMap<String, Quantity>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_with_their_suffixes() {
        let check =
            |text: &str, expected: i64| assert_eq!(milli(&Quantity(text.to_owned())), expected, "{text}");
        check("250m", 250);
        check("1", 1000);
        check("0.5", 500);
        check("1Ki", 1_024_000);
        check("2k", 2_000_000);
        check("1e3", 1_000_000);
    }
}
