//! Validation of in-tree volume sources that CSI drivers have replaced.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::Value;

use crate::{
    accessors::{integer, list, text},
    validation,
};

/// Required fields of each source.
const REQUIRED: &[(&str, &[&str])] = &[
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

pub(crate) fn validate_source(kind: &str, source: &Value, path: &FieldPath) -> Vec<FieldError> {
    let known = REQUIRED.iter().find(|(known, _)| *known == kind);
    let required = known.into_iter().flat_map(|(_, fields)| fields.iter());
    let mut errors: Vec<FieldError> =
        required.filter_map(|field| validation::require_text(source, field, path)).collect();
    let monitors =
        list(source, "/monitors").is_empty().then(|| FieldError::required(&path.child("monitors"), ""));
    match kind {
        "cephfs" => errors.extend(monitors),
        "rbd" => {
            errors.extend(monitors);
            errors.extend(validation::require_text(source, "image", path));
        }
        "fc" => {
            let (names, ids) = (list(source, "/targetWWNs").is_empty(), list(source, "/wwids").is_empty());
            if names == ids {
                let detail = "must specify either targetWWNs or wwids, but not both";
                let path = path.child("targetWWNs");
                errors.push(match names {
                    true => FieldError::required(&path, detail),
                    false => FieldError::invalid(&path, list(source, "/targetWWNs").to_vec(), detail),
                });
            }
        }
        "flocker" => {
            let given = ["/datasetName", "/datasetUUID"].map(|field| !text(source, field).is_empty());
            if given == [false, false] {
                let detail = "one of datasetName and datasetUUID is required";
                errors.push(FieldError::required(path, detail));
            }
        }
        "quobyte" => {
            if text(source, "/registry").is_empty() {
                let detail = "must be a host:port pair or multiple pairs separated by commas";
                errors.push(FieldError::required(&path.child("registry"), detail));
            }
            errors.extend(validation::require_text(source, "volume", path));
        }
        "iscsi" => {
            let (name, unit) = (text(source, "/iqn"), integer(source, "/lun"));
            if !name.is_empty() && !["iqn.", "eui.", "naa."].iter().any(|form| name.starts_with(form)) {
                let detail = "must be valid format starting with iqn, eui, or naa";
                errors.push(FieldError::invalid(&path.child("iqn"), name, detail));
            }
            if !(0..=255).contains(&unit) {
                errors.push(FieldError::invalid(
                    &path.child("lun"),
                    unit,
                    validation::inclusive_range_message(0, 255),
                ));
            }
        }
        _ => {}
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn legacy_sources_require_their_fields() {
        let path = FieldPath::root("v");
        for (kind, given, expected) in [
            ("glusterfs", json!({}), vec!["v.endpoints: Required value", "v.path: Required value"]),
            ("rbd", json!({}), vec!["v.monitors: Required value", "v.image: Required value"]),
            ("rbd", json!({"monitors": ["m"], "image": "i"}), vec![]),
            (
                "fc",
                json!({}),
                vec!["v.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"],
            ),
            ("fc", json!({"wwids": ["w"]}), vec![]),
            (
                "iscsi",
                json!({"targetPortal": "a", "iqn": "b", "lun": 300}),
                vec![
                    "v.iqn: Invalid value: \"b\": must be valid format starting with iqn, eui, or naa",
                    "v.lun: Invalid value: 300: must be between 0 and 255, inclusive",
                ],
            ),
            ("flocker", json!({}), vec!["v: Required value: one of datasetName and datasetUUID is required"]),
        ] {
            assert_eq!(messages(validate_source(kind, &given, &path)), expected, "{kind} {given}");
        }
    }
}
