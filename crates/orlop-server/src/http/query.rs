//! Query parameters.

use std::num::{IntErrorKind, ParseIntError};

use orlop_api::status::Status;

/// A request's query parameters, decoded.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes the part after the question mark.
    pub fn parse(query: &str) -> Self {
        Self(form_urlencoded::parse(query.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter; empty where it is absent.
    pub fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A switch, if it is there: off if it says `false` or `0`, as Go reads switches in queries.
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !matches!(value, "false" | "0"))
    }

    /// Whether a switch is there and on.
    pub fn flag(&self, name: &str) -> bool {
        self.switch(name).unwrap_or(false)
    }

    /// Whether a collection is to be watched.
    pub fn is_watch(&self) -> bool {
        self.flag("watch")
    }

    /// A whole number, if the parameter is there.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|error: ParseIntError| {
                let why = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}"))
            }),
        }
    }
}
