//! Label selectors, asked of the store's index where it can answer.
//!
//! The index narrows; the selector itself decides, on the labels of the object. So an operator that the
//! index does not have (`>` and `<`) only costs a wider look.

use orlop_api::labels::{Operator, Selector};
use orlop_store::{Filter, Requirement, Terms};
use serde_json::{Map, Value};

use crate::{error::Error, object::Object};

/// What a term on a label is called, here and in `orlop serve`.
fn term(label: &str) -> String {
    format!("l:{label}")
}

/// What an object is found under. Owners are not for this API, but the garbage collector of `orlop serve`
/// finds an object by them whoever wrote it last.
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

/// Whether the selector chooses an object.
pub(crate) fn chooses(selector: &Selector, object: &Object) -> bool {
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
