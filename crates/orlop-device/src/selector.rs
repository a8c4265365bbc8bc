//! Label selectors, with the store's index where it applies.
//!
//! The index narrows the read; the selector decides by the labels of each object. An operator that the index does not
//! support (`>` and `<`) reads more objects.

use orlop_api::labels::{Operator, Selector};
use orlop_store::{Filter, Requirement, Terms};
use serde_json::{Map, Value};

use crate::{error::Error, object::Object};

/// Returns the name of a label's index term, the same as in `orlop serve`.
fn term(label: &str) -> String {
    format!("l:{label}")
}

/// Returns the index terms of an object. This API does not use owners, but the garbage collector of `orlop serve` finds
/// objects by them, whichever API wrote last.
pub(crate) fn terms(meta: &Map<String, Value>) -> Terms {
    let labels = meta.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(label, value)| Some((term(label), value.as_str()?)));
    let owners = meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owners = owners.filter_map(|owner| Some(("o".to_owned(), owner.get("uid")?.as_str()?)));
    Terms::new(labels.chain(owners))
}

/// Reads a selector.
pub(crate) fn parse(text: &str) -> Result<Selector, Error> {
    /// Longer than any selector a person or program writes.
    const BYTES_MAX: usize = 16 << 10;
    if text.len() > BYTES_MAX {
        return Err(Error::BadRequest(format!("label selector: longer than {BYTES_MAX} bytes")));
    }
    orlop_api::labels::parse(text).map_err(|why| Error::BadRequest(format!("label selector: {why}")))
}

/// A filter that lets through all that the selector matches, and little else.
pub(crate) fn filter(selector: &Selector) -> Filter {
    let requirements = selector.requirements().iter().map(|requirement| {
        let (field, values) = (term(requirement.key()), requirement.values().to_vec());
        match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals | Operator::In => Requirement::In(field, values),
            Operator::NotEquals | Operator::NotIn => Requirement::NotIn(field, values),
            Operator::DoesNotExist => Requirement::Absent(field),
            Operator::Exists | Operator::GreaterThan | Operator::LessThan => Requirement::Exists(field),
        }
    });
    Filter(requirements.collect())
}

/// Returns `true` if the selector matches an object.
pub(crate) fn matches(selector: &Selector, object: &Object) -> bool {
    selector.matches(object.labels())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_filter_lets_through_all_that_the_selector_matches() {
        let meta = json!({"labels": {"tier": "gold", "rack": "7"}});
        let (labels, terms) = (&meta["labels"], terms(meta.as_object().unwrap()));
        for text in
            ["", "tier=gold", "tier in (gold,silver)", "tier!=tin", "!color", "rack>5", "rack", "rack<9,tier"]
        {
            let selector = parse(text).unwrap();
            assert!(selector.matches(labels.as_object()), "{text}");
            assert!(filter(&selector).matches(&terms), "{text}");
        }
        for text in ["tier=tin", "color", "!tier", "tier notin (gold)"] {
            assert!(!filter(&parse(text).unwrap()).matches(&terms), "{text}");
        }
        assert!(matches!(parse("a=(b"), Err(Error::BadRequest(_))));
    }
}
