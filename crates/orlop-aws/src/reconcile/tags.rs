//! Tags that the controllers put on every resource.

use serde_json::{Value, json};

use crate::{
    cluster::text,
    kind::{Object, Tags, UID_TAG, at, set, tag_map, tags_of},
};

/// Expands the tags of the settings for an object, and adds its UID.
pub(super) fn expand(tags: &[(String, String)], service: &str, object: &Value) -> Vec<(String, String)> {
    let field = |pointer: &str| text(object, pointer).unwrap_or_default().to_owned();
    let labels = object.pointer("/metadata/labels");
    let label =
        |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str).unwrap_or_default();
    let replace = |text: &str| {
        text.replace("%CONTROLLER_SERVICE%", service)
            .replace("%CONTROLLER_VERSION%", env!("CARGO_PKG_VERSION"))
            .replace("%K8S_NAMESPACE%", &field("/metadata/namespace"))
            .replace("%K8S_RESOURCE_NAME%", &field("/metadata/name"))
            .replace("%K8S_RESOURCE_KIND%", &field("/kind"))
            .replace("%MANAGED_BY%", label("app.kubernetes.io/managed-by"))
            .replace("%KRO_VERSION%", label("kro.run/kro-version"))
    };
    let expanded = tags.iter().map(|(key, value)| (replace(key), replace(value)));
    let mut all: Vec<_> = expanded.filter(|(key, value)| !key.is_empty() && !value.is_empty()).collect();
    all.push((UID_TAG.to_owned(), field("/metadata/uid")));
    all
}

fn path_of(tags: Tags) -> Option<&'static str> {
    match tags {
        Tags::None => None,
        Tags::Map(path) | Tags::List(path) => Some(path),
    }
}

fn write(tags: Tags, spec: &mut Value, all: &[(String, String)]) {
    match tags {
        Tags::None => {}
        Tags::Map(path) => set(spec, path, tag_map(all)),
        Tags::List(path) => {
            let list = all.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
            set(spec, path, list);
        }
    }
}

/// Adds system tags to the desired ones. The user's value wins.
pub(super) fn add(tags: Tags, object: &mut Object, system: &[(String, String)]) {
    let Some(path) = path_of(tags) else { return };
    let mut all = tags_of(at(&object.spec, path));
    for (key, value) in system {
        if !all.iter().any(|(known, _)| known == key) {
            all.push((key.clone(), value.clone()));
        }
    }
    write(tags, &mut object.spec, &all);
}

/// Removes tags that are not the user's: AWS' own and the system's.
pub(super) fn strip(tags: Tags, spec: &mut Value, system: &[(String, String)]) {
    let Some(path) = path_of(tags) else { return };
    if at(spec, path).is_none() {
        return;
    }
    let kept: Vec<_> = tags_of(at(spec, path))
        .into_iter()
        .filter(|(key, _)| !key.starts_with("aws:") && !system.iter().any(|(known, _)| known == key))
        .collect();
    write(tags, spec, &kept);
}

/// Returns the UID that a resource is tagged with.
pub(super) fn uid(tags: Tags, spec: &Value) -> Option<String> {
    let all = tags_of(at(spec, path_of(tags)?));
    all.into_iter().find(|(key, _)| key == UID_TAG).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_expand_and_empty_tags_go() {
        let tags = vec![
            ("a".to_owned(), "%CONTROLLER_SERVICE%-%K8S_NAMESPACE%".to_owned()),
            ("b".to_owned(), "%MANAGED_BY%".to_owned()),
        ];
        let object = json!({"metadata": {"namespace": "n", "uid": "u"}});
        let all = expand(&tags, "s3", &object);
        assert_eq!(all, [("a".to_owned(), "s3-n".to_owned()), (UID_TAG.to_owned(), "u".to_owned())]);
    }

    #[test]
    fn system_tags_are_stripped_and_users_stay() {
        let mut spec = json!({"tags": [{"key": "mine", "value": "1"}, {"key": "aws:x", "value": "2"}, {"key": "a", "value": "3"}]});
        strip(Tags::List("tags"), &mut spec, &[("a".to_owned(), "3".to_owned())]);
        assert_eq!(spec, json!({"tags": [{"key": "mine", "value": "1"}]}));
    }
}
