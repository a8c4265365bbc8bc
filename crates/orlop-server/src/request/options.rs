//! Options of verbs, as queries carry them.

use orlop_api::{
    field_error::FieldError,
    group_version::GroupKind,
    object_meta::FIELD_MANAGER_LENGTH_MAX,
    options::{self, FieldValidation},
    status::Status,
};

use orlop_api::query::Query;

/// Options of a create, update or patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Does everything but write.
    pub dry_run: bool,
    /// Field manager; empty for the user agent.
    pub field_manager: String,
    /// Treatment of unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Takes fields from other managers (apply only).
    pub force: Option<bool>,
}

impl WriteOptions {
    /// Parses and validates the options of a create or update. `name` is their kind, such as CreateOptions.
    pub fn of(query: &Query, name: &str) -> Result<Self, Status> {
        let given = Self::given(query);
        refuse(name, &given.validate())?;
        Ok(given.into())
    }

    /// Parses and validates the options of a patch.
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

    /// Returns the field manager.
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

/// Validates the options of a list or watch.
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

/// Returns Invalid for options with errors.
pub fn refuse(options: &str, errors: &[FieldError]) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&GroupKind::new("meta.k8s.io", options), "", errors))
}
