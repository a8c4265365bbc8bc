//! Query parameters, and the options that verbs read from them.

use std::num::{IntErrorKind, ParseIntError};

use orlop_api::{
    field_error::FieldError,
    group_version::GroupKind,
    object_meta::FIELD_MANAGER_LENGTH_MAX,
    options::{self, FieldValidation},
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

impl WriteOptions {
    /// Reads and checks the options of a create or update. `name` is what Kubernetes calls them.
    pub fn of(query: &Query, name: &str) -> Result<Self, Status> {
        let given = Self::given(query);
        refuse(name, &given.validate())?;
        Ok(given.into())
    }

    /// Reads and checks the options of a patch.
    pub fn of_patch(query: &Query, is_apply: bool) -> Result<Self, Status> {
        let given = Self::given(query);
        refuse("PatchOptions", &given.validate_patch(is_apply))?;
        Ok(given.into())
    }

    fn given(query: &Query) -> options::WriteOptions {
        options::WriteOptions {
            dry_run: query.all("dryRun").map(str::to_owned).collect(),
            field_manager: query.text("fieldManager").to_owned(),
            field_validation: query.text("fieldValidation").to_owned(),
            force: query.switch("force"),
        }
    }

    /// The name under which written fields are owned.
    pub fn manager(&self, user_agent: &str) -> String {
        let name = if self.field_manager.is_empty() {
            user_agent.split('/').next().unwrap_or_default()
        } else {
            &self.field_manager
        };
        let name: String = name.chars().take(FIELD_MANAGER_LENGTH_MAX).collect();
        if name.is_empty() { "unknown".to_owned() } else { name }
    }
}

impl From<options::WriteOptions> for WriteOptions {
    fn from(given: options::WriteOptions) -> Self {
        Self {
            dry_run: !given.dry_run.is_empty(),
            field_validation: FieldValidation::parse(&given.field_validation).unwrap_or_default(),
            field_manager: given.field_manager,
            force: given.force,
        }
    }
}

/// Checks what a list or watch asks for.
pub(crate) fn check_list(query: &Query, watch: bool) -> Result<(), Status> {
    let given = options::ListOptions {
        watch,
        resource_version: query.text("resourceVersion").to_owned(),
        resource_version_match: query.text("resourceVersionMatch").to_owned(),
        continue_token: query.text("continue").to_owned(),
        send_initial_events: query.switch("sendInitialEvents"),
    };
    refuse("ListOptions", &given.validate())
}

/// Answers 422 about options, if there is anything wrong with them.
pub fn refuse(options: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("meta.k8s.io", options), "", errors))
}
