//! Subjects of certificates, and of requests for them.

use x509_parser::x509::AttributeTypeAndValue;

/// Returns the texts of attributes. One that is not text fails all: who reads it nevertheless, as Go does a BMPString, would
/// know of a name that nobody here has seen.
pub(crate) fn texts<'a>(
    attributes: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>,
) -> Result<Vec<String>, String> {
    let text = |attribute: &AttributeTypeAndValue<'_>| attribute.as_str().map(str::to_owned);
    let texts: Result<_, _> = attributes.map(text).collect();
    texts.map_err(|error| format!("the subject is not text: {error}"))
}
