//! Query parameters, and the options that verbs read from them.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    status::Status,
};

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

    /// Whether a parameter is there and is not `false` or `0`, as Go reads switches in queries.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "false" | "0"))
    }

    /// Whether a collection is to be watched.
    pub fn is_watch(&self) -> bool {
        self.flag("watch")
    }

    /// A whole number, if the parameter is there.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Status> {
        match self.get(name) {
            None | Some("") => Ok(None),
            Some(text) => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
            }),
        }
    }
}

/// What a create, update or patch may ask for.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Do everything but write.
    pub dry_run: bool,
    /// Who owns the fields; empty for the user agent.
    pub field_manager: String,
    /// What to do about fields nobody knows.
    pub field_validation: FieldValidation,
    /// Take fields from their owners (apply only).
    pub force: Option<bool>,
}

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

impl WriteOptions {
    /// Reads and checks the options of a write. `options` is the name Kubernetes gives them.
    pub fn of(query: &Query, options: &str) -> Result<Self, Status> {
        let mut errors = dry_run_errors(query);
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let path = FieldPath::root("fieldValidation");
                errors.push(FieldError::not_supported(&path, other, &["Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let field_manager = query.text("fieldManager").to_owned();
        errors.extend(orlop_api::object_meta::validate_field_manager(
            &field_manager,
            &FieldPath::root("fieldManager"),
        ));
        let force = query.get("force").map(|value| !matches!(value, "false" | "0"));
        refuse(options, &errors)?;
        Ok(Self { dry_run: query.get("dryRun").is_some(), field_manager, field_validation, force })
    }

    /// The name under which written fields are owned.
    pub fn manager(&self, user_agent: &str) -> String {
        let name = if self.field_manager.is_empty() {
            user_agent.split('/').next().unwrap_or_default()
        } else {
            &self.field_manager
        };
        let name: String = name.chars().take(128).collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    }
}

/// `dryRun` may only say All.
pub fn dry_run_errors(query: &Query) -> Vec<FieldError> {
    let path = FieldPath::root("dryRun");
    let bad = query.all("dryRun").filter(|value| *value != "All");
    bad.map(|value| FieldError::not_supported(&path, value, &["All"])).collect()
}

/// Answers 422 about options, if there is anything wrong with them.
pub fn refuse(options: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("meta.k8s.io", options), "", errors))
}
