//! Selectors of requests for collections, by which authorizers may narrow access.

use orlop_api::{
    fields::{self, Term},
    labels::{self, Requirement},
    query::Query,
};

/// Selectors of a request. A requirement that cannot be understood is left out: what remains selects more, so that a
/// decision about it is a decision about all that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Requirements of the field selector.
    pub fields: Vec<Term>,
    /// Requirements of the label selector.
    pub labels: Vec<Requirement>,
    /// True if a part of the field selector was left out.
    pub fields_incomplete: bool,
    /// True if a part of the label selector was left out.
    pub labels_incomplete: bool,
}

impl Selectors {
    /// Returns the selectors of a query; `None` if it has none.
    pub(super) fn of(query: &Query) -> Option<Box<Self>> {
        let (fields, labels) = (query.text("fieldSelector"), query.text("labelSelector"));
        (!fields.is_empty() || !labels.is_empty()).then(|| Box::new(Self::parse(fields, labels)))
    }

    /// Parses selectors; an empty text selects everything.
    pub fn parse(fields: &str, labels: &str) -> Self {
        let parsed_fields = fields::Selector::parse(fields).map(|selector| selector.terms);
        let parsed_labels = labels::parse(labels).map(|selector| selector.requirements().to_vec());
        Self {
            fields_incomplete: parsed_fields.is_err(),
            labels_incomplete: parsed_labels.is_err(),
            fields: parsed_fields.unwrap_or_default(),
            labels: parsed_labels.unwrap_or_default(),
        }
    }

    /// Returns the value that a field must have.
    pub fn required_field(&self, field: &str) -> Option<&str> {
        let mut terms = self.fields.iter().filter(|term| term.equal && term.field == field);
        terms.next().map(|term| term.value.as_str())
    }
}
