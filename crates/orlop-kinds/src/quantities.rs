//! Resource quantities in objects: strings, or numbers where a client wrote one.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    quantity::Quantity,
};
use serde_json::Value;

use crate::{accessors::scalar_text, validation::NOT_NEGATIVE};

/// Parses a quantity.
pub fn parse(value: &Value) -> Option<Quantity> {
    Quantity::parse(&scalar_text(Some(value))).ok()
}

/// Returns a quantity in canonical form; `0` if absent.
pub fn canonical_text(value: Option<&Value>) -> String {
    value.and_then(parse).map_or_else(|| scalar_text(value), |amount| amount.to_string())
}

/// Returns true if the quantity is greater than zero.
pub fn is_positive(amount: &Quantity) -> bool {
    !amount.is_negative() && !amount.is_zero()
}

/// Validates that a quantity is at least zero.
pub fn validate_non_negative(value: &Value, path: &FieldPath) -> Option<FieldError> {
    let amount = parse(value)?;
    amount.is_negative().then(|| FieldError::invalid(path, amount.to_string(), NOT_NEGATIVE))
}

/// Validates that a quantity is greater than zero.
pub fn validate_positive(value: &Value, path: &FieldPath) -> Option<FieldError> {
    let amount = parse(value)?;
    (!is_positive(&amount))
        .then(|| FieldError::invalid(path, amount.to_string(), "must be greater than zero"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_parse_from_numbers_and_strings() {
        assert_eq!(parse(&json!(1)), parse(&json!("1000m")));
        assert_eq!(canonical_text(Some(&json!("1024Mi"))), "1Gi");
        assert_eq!(canonical_text(None), "0");
        let path = FieldPath::root("a");
        let error = validate_non_negative(&json!("-1Gi"), &path).unwrap();
        assert_eq!(error.to_string(), r#"a: Invalid value: "-1Gi": must be greater than or equal to 0"#);
        assert_eq!(validate_non_negative(&json!("0"), &path), None);
        assert_eq!(
            validate_positive(&json!("0"), &path).unwrap().to_string(),
            r#"a: Invalid value: "0": must be greater than zero"#
        );
    }
}
