//! Names of configurations that come from files. The API cannot write them.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta,
};
use serde_json::Value;

const SUFFIX: &str = ".static.k8s.io";

/// Returns the error of a new object with such a name.
pub(crate) fn validate_name(object: &Value) -> Option<FieldError> {
    let name = object_meta::text(object_meta::of(object), "name");
    let path = FieldPath::root("metadata").child("name");
    reservation(name).map(|detail| FieldError::invalid(&path, name, detail))
}

/// Returns the warning about an object that has such a name already.
pub(crate) fn name_warning(object: &Value) -> Option<String> {
    let name = object_meta::text(object_meta::of(object), "name");
    reservation(name).map(|detail| format!("metadata.name: {detail}"))
}

fn reservation(name: &str) -> Option<String> {
    name.ends_with(SUFFIX).then(|| {
        format!(
            "names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed \
             via the API"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_static_configurations_are_reserved() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert_eq!(validate_name(&named("a.k8s.io")), None);
        let reserved = named("a.static.k8s.io");
        let detail = "names ending with \".static.k8s.io\" are reserved for static manifest-based configurations and \
                      cannot be managed via the API";
        assert_eq!(
            validate_name(&reserved).unwrap().to_string(),
            format!("metadata.name: Invalid value: \"a.static.k8s.io\": {detail}")
        );
        assert_eq!(name_warning(&reserved), Some(format!("metadata.name: {detail}")));
    }
}
