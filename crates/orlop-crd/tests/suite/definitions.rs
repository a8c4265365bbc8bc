//! Validation errors of definitions match Kubernetes in text and order.

use crate::widgets::{changed, widgets, with_schema};
use orlop_crd::{apply_defaults, validate_create, validate_status_update, validate_update, warnings};
use serde_json::{Value, json};

fn texts(errors: &[orlop_api::field_error::FieldError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn creates(definition: &Value, expected: &[&str]) {
    assert_eq!(texts(&validate_create(definition)), expected, "{definition:#}");
}

#[track_caller]
fn updates(definition: &Value, old: &Value, expected: &[&str]) {
    assert_eq!(texts(&validate_update(&stored(definition), &stored(old))), expected, "{definition:#}");
}

/// Returns the definition as stored.
fn stored(definition: &Value) -> Value {
    changed(definition.clone(), &[("/metadata/resourceVersion", json!("1"))])
}

fn established(definition: &Value) -> Value {
    let conditions = json!([{"type": "Established", "status": "True"}]);
    changed(definition.clone(), &[("/status/conditions", conditions)])
}

const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn valid_definition_has_no_errors() {
    creates(&widgets(), &[]);
    updates(&widgets(), &widgets(), &[]);
    assert!(warnings(&widgets(), None).is_empty());
}

#[test]
fn defaulting_is_idempotent() {
    let definition = widgets();
    assert_eq!(definition["spec"]["names"]["singular"], "widget");
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    let mut again = definition.clone();
    apply_defaults(&mut again);
    assert_eq!(again, definition);
    let service = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}});
    let mut webhook = changed(definition, &[("/spec/conversion", service)]);
    apply_defaults(&mut webhook);
    assert_eq!(webhook["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"], 443);
    for mut odd in [
        json!(null),
        json!([]),
        json!({}),
        json!({"spec": 5, "status": []}),
        json!({"spec": {"names": [], "conversion": 3}}),
    ] {
        apply_defaults(&mut odd);
    }
}

#[test]
fn names_are_validated() {
    let with = |changes: &[(&str, Value)]| changed(widgets(), changes);
    creates(
        &with(&[("/metadata/name", json!("gadgets.example.com"))]),
        &[r#"metadata.name: Invalid value: "gadgets.example.com": must be spec.names.plural+"."+spec.group"#],
    );
    creates(
        &with(&[("/metadata/name", json!("Widgets.example.com"))]),
        &[
            &format!(r#"metadata.name: Invalid value: "Widgets.example.com": {SUBDOMAIN}"#),
            r#"metadata.name: Invalid value: "Widgets.example.com": must be spec.names.plural+"."+spec.group"#,
        ],
    );
    creates(
        &with(&[("/spec/group", json!("")), ("/metadata/name", json!("widgets.x"))]),
        &[
            r#"metadata.name: Invalid value: "widgets.x": must be spec.names.plural+"."+spec.group"#,
            "spec.group: Required value",
        ],
    );
    creates(
        &with(&[("/spec/group", json!("example")), ("/metadata/name", json!("widgets.example"))]),
        &[r#"spec.group: Invalid value: "example": should be a domain with at least one dot"#],
    );
    creates(
        &with(&[("/spec/group", json!("exa_mple.com"))]),
        &[
            r#"metadata.name: Invalid value: "widgets.example.com": must be spec.names.plural+"."+spec.group"#,
            &format!(r#"spec.group: Invalid value: "exa_mple.com": {SUBDOMAIN}"#),
        ],
    );
    creates(
        &with(&[
            ("/spec/names", json!({"plural": "", "shortNames": ["W"], "categories": ["all", "A b"]})),
            ("/metadata/name", json!("x.example.com")),
        ]),
        &[
            r#"metadata.name: Invalid value: "x.example.com": must be spec.names.plural+"."+spec.group"#,
            "spec.names.plural: Required value",
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
            &format!(r#"spec.names.shortNames[0]: Invalid value: "W": {LABEL}"#),
            &format!(r#"spec.names.categories[1]: Invalid value: "A b": {LABEL}"#),
        ],
    );
    creates(
        &with(&[
            ("/spec/names/singular", json!("Widget")),
            ("/spec/names/kind", json!("Wid_get")),
            ("/spec/names/listKind", json!("Wid_get")),
        ]),
        &[
            &format!(r#"spec.names.singular: Invalid value: "Widget": {LABEL}"#),
            &format!(
                r#"spec.names.kind: Invalid value: "Wid_get": may have mixed case, but should otherwise match: {LABEL}"#
            ),
            &format!(
                r#"spec.names.listKind: Invalid value: "Wid_get": may have mixed case, but should otherwise match: {LABEL}"#
            ),
            r#"spec.names.listKind: Invalid value: "Wid_get": kind and listKind may not be the same"#,
        ],
    );
    creates(&with(&[("/spec/scope", json!(""))]), &["spec.scope: Required value"]);
    creates(
        &with(&[("/spec/scope", json!("Galaxy"))]),
        &[r#"spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#],
    );
}

#[test]
fn versions_are_validated_together() {
    let with = |changes: &[(&str, Value)]| changed(widgets(), changes);
    let printed = |versions: &[(&str, bool)]| {
        let print = |(name, storage): &(&str, bool)| {
            format!(
                r#"{{"Name":"{name}","Served":true,"Storage":{storage},"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,"AdditionalPrinterColumns":null,"SelectableFields":null}}"#
            )
        };
        format!("[{}]", versions.iter().map(print).collect::<Vec<_>>().join(","))
    };
    let version = widgets()["spec"]["versions"][0].clone();
    let other = |name: &str, storage: bool| {
        changed(version.clone(), &[("/name", json!(name)), ("/storage", json!(storage))])
    };
    creates(
        &with(&[("/spec/versions/-", other("v1", false))]),
        &[&format!(
            "spec.versions: Invalid value: {}: must contain unique version names",
            printed(&[("v1", true), ("v1", false)])
        )],
    );
    creates(
        &with(&[("/spec/versions/-", other("v2", true))]),
        &[
            &format!(
                "spec.versions: Invalid value: {}: must have exactly one version marked as storage version",
                printed(&[("v1", true), ("v2", true)])
            ),
            r#"status.storedVersions: Invalid value: ["v1"]: must have the storage version v2"#,
        ],
    );
    creates(
        &with(&[("/spec/versions", json!([]))]),
        &[
            "spec.versions: Invalid value: []: must have exactly one version marked as storage version",
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"#,
        ],
    );
    creates(
        &with(&[("/spec/versions/0/name", json!("V1")), ("/status/storedVersions", json!(["V1"]))]),
        &[
            &format!(r#"spec.versions[0].name: Invalid value: "V1": {LABEL}"#),
            &format!(r#"spec.version: Invalid value: "V1": {LABEL}"#),
        ],
    );
    creates(
        &with(&[("/spec/versions/0/schema", json!(null))]),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    for (deprecated, warning, problem) in [
        (false, "old", r#""old": can only be set for deprecated versions"#),
        (true, "", r#""": must not be an empty string"#),
        (
            true,
            "a\u{7}",
            r#""a\u0007": must only contain printable UTF-8 characters; non-printable character found at index 1"#,
        ),
    ] {
        creates(
            &with(&[
                ("/spec/versions/0/deprecated", json!(deprecated)),
                ("/spec/versions/0/deprecationWarning", json!(warning)),
            ]),
            &[&format!("spec.versions[0].deprecationWarning: Invalid value: {problem}")],
        );
    }
    let long = "x".repeat(257);
    creates(
        &with(&[
            ("/spec/versions/0/deprecated", json!(true)),
            ("/spec/versions/0/deprecationWarning", json!(long)),
        ]),
        &[&format!(
            r#"spec.versions[0].deprecationWarning: Invalid value: "{long}": must be <= 256 characters long"#
        )],
    );
    creates(
        &with(&[("/spec/preserveUnknownFields", json!(true))]),
        &[
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ],
    );
}

#[test]
fn shared_fields_are_reported_once() {
    let two = |schema: Value| {
        let mut second = widgets()["spec"]["versions"][0].clone();
        second["name"] = json!("v2");
        second["storage"] = json!(false);
        second["schema"]["openAPIV3Schema"] = schema;
        changed(widgets(), &[("/spec/versions/-", second)])
    };
    let bad = json!({"type": "object", "properties": {"spec": {"properties": {}}}});
    creates(
        &with_schema(bad.clone()),
        &[
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
    creates(
        &two(bad),
        &[
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
        ],
    );
}

#[test]
fn paths_of_columns_scale_and_selectable_fields_are_validated() {
    let with = |key: &str, value: Value| changed(widgets(), &[(&format!("/spec/versions/0/{key}"), value)]);
    creates(
        &with(
            "additionalPrinterColumns",
            json!([{}, {"name": "A", "type": "text", "format": "odd", "jsonPath": "spec.a"}, {"name": "B", "type": "string", "format": "date-time", "jsonPath": ".spec.b[?(@.x=='y')].z"}]),
        ),
        &[
            "spec.additionalPrinterColumns[0].name: Required value",
            "spec.additionalPrinterColumns[0].type: Required value: must be one of boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Required value",
            r#"spec.additionalPrinterColumns[1].type: Invalid value: "text": must be one of boolean,date,integer,number,string"#,
            r#"spec.additionalPrinterColumns[1].format: Invalid value: "odd": must be one of byte,date,date-time,double,float,int32,int64,password"#,
            r#"spec.additionalPrinterColumns[1].JSONPath: Invalid value: "spec.a": must be a simple json path starting with ."#,
        ],
    );
    creates(
        &with("subresources", json!({"scale": {}})),
        &[
            "spec.subresources.scale.specReplicasPath: Required value",
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
    creates(
        &with(
            "subresources",
            json!({"scale": {"specReplicasPath": ".status.replicas", "statusReplicasPath": "status.replicas", "labelSelectorPath": ".metadata.labels"}}),
        ),
        &[
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.replicas": should be a json path under .spec"#,
            r#"spec.subresources.scale.statusReplicasPath: Invalid value: "status.replicas": must be a simple json path starting with ."#,
            r#"spec.subresources.scale.labelSelectorPath: Invalid value: ".metadata.labels": should be a json path under either .spec or .status"#,
        ],
    );
    creates(
        &with(
            "subresources",
            json!({"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}}),
        ),
        &[],
    );
    creates(&with("selectableFields", json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}])), &[]);
    let fields = |paths: &[&str]| {
        with("selectableFields", paths.iter().map(|path| json!({"jsonPath": path})).collect())
    };
    creates(
        &fields(&["", ".spec.nope", "spec.color", ".spec['color']", ".spec", ".spec.color", ".spec.color"]),
        &[
            "spec.selectableFields[0].jsonPath: Required value",
            r#"spec.selectableFields[1].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field"#,
            r#"spec.selectableFields[2].jsonPath: Invalid value: "spec.color": is an invalid path: expected [ or . but got: spec"#,
            r#"spec.selectableFields[3].jsonPath: Invalid value: ".spec['color']": is an invalid path: array notation is not allowed"#,
            r#"spec.selectableFields[4].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
            r#"spec.selectableFields[6].jsonPath: Duplicate value: ".spec.color""#,
        ],
    );
    let metadata = json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    creates(
        &changed(
            with_schema(metadata),
            &[("/spec/versions/0/selectableFields", json!([{"jsonPath": ".metadata.name"}]))],
        ),
        &[
            r#"spec.selectableFields[0].jsonPath: Invalid value: ".metadata.name": must not point to fields in metadata"#,
        ],
    );
    let nine: Vec<_> = (0..9).map(|index| format!("f{index}")).collect();
    let properties: serde_json::Map<_, _> =
        nine.iter().map(|name| (name.clone(), json!({"type": "string"}))).collect();
    let many = changed(
        with_schema(json!({"type": "object", "properties": properties})),
        &[(
            "/spec/versions/0/selectableFields",
            nine.iter().map(|name| json!({"jsonPath": format!(".{name}")})).collect(),
        )],
    );
    creates(&many, &["spec.selectableFields: Too many: 9: must have at most 8 items"]);
    updates(&many, &many, &[]);
    let fewer = changed(many.clone(), &[("/spec/versions/0/selectableFields", json!([{"jsonPath": ".f0"}]))]);
    updates(&fewer, &many, &[]);
    updates(&many, &fewer, &["spec.selectableFields: Too many: 9: must have at most 8 items"]);
}

#[test]
fn conversion_is_validated() {
    let with = |conversion: Value| changed(widgets(), &[("/spec/conversion", conversion)]);
    let webhook = |config: Value, versions: Value| {
        with(
            json!({"strategy": "Webhook", "webhook": {"clientConfig": config, "conversionReviewVersions": versions}}),
        )
    };
    creates(&with(json!({"strategy": ""})), &["spec.conversion.strategy: Required value"]);
    creates(
        &with(json!({"strategy": "Magic"})),
        &[r#"spec.conversion.strategy: Unsupported value: "Magic": supported values: "None", "Webhook""#],
    );
    creates(
        &with(json!({"strategy": "Webhook"})),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    creates(
        &with(
            json!({"strategy": "None", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}),
        ),
        &[
            "spec.conversion.webhookClientConfig: Forbidden: should not be set when strategy is not set to Webhook",
            "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ],
    );
    creates(&webhook(json!({"url": "https://example.com/convert"}), json!(["v1"])), &[]);
    let both =
        "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required";
    creates(&webhook(json!({}), json!(["v1"])), &[both]);
    creates(&webhook(json!({"url": "https://x", "service": {}}), json!(["v1"])), &[both]);
    let url = "spec.conversion.webhookClientConfig.url";
    let form = "; desired format: https://host[/path]";
    for (value, expected) in [
        (
            "http://host",
            vec![format!(r#"{url}: Invalid value: "http": 'https' is the only allowed URL scheme{form}"#)],
        ),
        ("https://", vec![format!(r#"{url}: Invalid value: "": host must be specified{form}"#)]),
        (
            "https://u:p@host",
            vec![format!(r#"{url}: Invalid value: "u:p": user information is not permitted in the URL"#)],
        ),
        (
            "https://host/#f",
            vec![format!(r#"{url}: Invalid value: "f": fragments are not permitted in the URL"#)],
        ),
        (
            "https://host/?q=1",
            vec![format!(r#"{url}: Invalid value: "q=1": query parameters are not permitted in the URL"#)],
        ),
        (
            "https://host:x/",
            vec![format!(
                r#"{url}: Required value: url must be a valid URL: parse "https://host:x/": invalid port ":x" after host{form}"#
            )],
        ),
        (
            ":",
            vec![format!(
                r#"{url}: Required value: url must be a valid URL: parse ":": missing protocol scheme{form}"#
            )],
        ),
        (
            "host",
            vec![
                format!(r#"{url}: Invalid value: "": 'https' is the only allowed URL scheme{form}"#),
                format!(r#"{url}: Invalid value: "": host must be specified{form}"#),
            ],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        creates(&webhook(json!({"url": value}), json!(["v1"])), &expected);
    }
    let service = "spec.conversion.webhookClientConfig.service";
    creates(
        &webhook(json!({"service": {"port": 0}}), json!(["v1"])),
        &[
            &format!("{service}.name: Required value"),
            &format!("{service}.namespace: Required value"),
            &format!(
                "{service}.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"
            ),
        ],
    );
    for (path, problem) in [
        ("//", "segment[0] may not be empty"),
        ("/a//b", "segment[1] may not be empty"),
        ("a", "must start with a '/'"),
    ] {
        let found = validate_create(&webhook(
            json!({"service": {"name": "n", "namespace": "s", "port": 443, "path": path}}),
            json!(["v1"]),
        ));
        assert_eq!(
            found[0].to_string(),
            format!("{service}.path: Invalid value: {}: {problem}", json!(path)),
            "{path}"
        );
    }
    creates(
        &webhook(json!({"url": "https://x"}), json!(["v2", "v2", "V"])),
        &[
            r#"spec.conversion.conversionReviewVersions[1]: Invalid value: "v2": duplicate version"#,
            &format!(r#"spec.conversion.conversionReviewVersions[2]: Invalid value: "V": {LABEL}"#),
            r#"spec.conversion.conversionReviewVersions: Invalid value: ["v2","v2","V"]: must include at least one of v1, v1beta1"#,
        ],
    );
    let unknown = webhook(json!({"url": "https://x"}), json!(["v2"]));
    updates(&unknown, &unknown, &[]);
    let broken = webhook(json!({"url": "https://x", "caBundle": "bm8="}), json!(["v1"]));
    creates(&broken, &[]);
    updates(
        &broken,
        &established(&webhook(json!({"url": "https://x"}), json!(["v1"]))),
        &[
            r#"spec.conversion.webhookClientConfig.caBundle: Invalid value: "bm8=": unable to load root certificates: unable to parse bytes as PEM block"#,
        ],
    );
    updates(&broken, &established(&broken), &[]);
}

#[test]
fn immutable_fields_of_established_definitions() {
    let scope =
        changed(widgets(), &[("/spec/scope", json!("Cluster")), ("/spec/names/kind", json!("Gadget"))]);
    updates(&scope, &widgets(), &[]);
    updates(
        &scope,
        &established(&widgets()),
        &[
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#,
        ],
    );
    updates(
        &changed(
            widgets(),
            &[("/spec/group", json!("example.org")), ("/spec/names/plural", json!("gadgets"))],
        ),
        &widgets(),
        &[
            r#"spec.group: Invalid value: "example.org": field is immutable"#,
            r#"spec.names.plural: Invalid value: "gadgets": field is immutable"#,
        ],
    );
    let status = changed(stored(&widgets()), &[("/status/acceptedNames", json!({"plural": "W"}))]);
    assert_eq!(
        texts(&validate_status_update(&status, &stored(&widgets()))),
        [format!(r#"status.acceptedNames.plural: Invalid value: "W": {LABEL}"#)]
    );
    creates(
        &changed(widgets(), &[("/status/storedVersions", json!(null))]),
        &["status.storedVersions: Invalid value: null: must have at least one stored version"],
    );
    creates(
        &changed(widgets(), &[("/status/storedVersions", json!(["v0", "v1"]))]),
        &[
            r#"status.storedVersions[0]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v0 and removes v0 from status.storedVersions"#,
        ],
    );
}

#[test]
fn protected_groups_require_api_approval() {
    let of = |annotation: Option<&str>| {
        let mut definition = changed(
            widgets(),
            &[("/spec/group", json!("example.k8s.io")), ("/metadata/name", json!("widgets.example.k8s.io"))],
        );
        if let Some(annotation) = annotation {
            definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        }
        definition
    };
    let path = "metadata.annotations[api-approved.kubernetes.io]";
    let wanted = r#"protected groups must have approval annotation "api-approved.kubernetes.io""#;
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    creates(&of(None), &[&format!("{path}: Required value: {wanted}, {see}")]);
    creates(
        &of(Some("yes")),
        &[&format!(
            r#"{path}: Invalid value: "yes": {wanted} with either a URL or a reason starting with "unapproved", {see}"#
        )],
    );
    creates(&of(Some("https://github.com/kubernetes/kubernetes/pull/1")), &[]);
    creates(&of(Some("unapproved, experimental-only")), &[]);
    updates(&of(Some("nonsense")), &of(Some("yes")), &[]);
    updates(&of(None), &of(None), &[]);
    updates(&of(None), &of(Some("yes")), &[&format!("{path}: Required value: {wanted}, {see}")]);
}

#[test]
fn unknown_formats_and_sets_of_objects_warn_once() {
    let schema = |format: &str, items: &str| {
        with_schema(json!({"type": "object", "properties": {
            "a": {"type": "string", "format": format}, "i": {"type": "integer", "format": "int32"}, "n": {"type": "number", "format": "double"},
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": items, "x-kubernetes-map-type": "atomic"}}}}))
    };
    assert_eq!(warnings(&schema("date-time", "string"), None), Vec::<String>::new());
    let odd = schema("colour", "object");
    assert_eq!(
        warnings(&odd, None),
        [
            r#"unrecognized format "colour""#,
            r#"x-kubernetes-list-type: set for items of type "object" is not supported by server-side apply or CEL validation rules"#
        ]
    );
    assert_eq!(warnings(&odd, Some(&odd)), Vec::<String>::new());
    assert_eq!(warnings(&schema("flavour", "string"), Some(&odd)), [r#"unrecognized format "flavour""#]);
}

#[test]
fn updates_tolerate_stored_violations() {
    let wrong = |schema: Value, expected: &str| {
        let definition = with_schema(json!({"type": "object", "properties": {"a": schema}}));
        let found = texts(&validate_create(&definition));
        assert_eq!(found, [format!("spec.validation.openAPIV3Schema.properties[a]{expected}")]);
        updates(&definition, &definition, &[]);
        let relabelled = changed(definition.clone(), &[("/metadata/labels", json!({"a": "b"}))]);
        updates(&relabelled, &definition, &[]);
        assert!(!validate_update(&stored(&definition), &stored(&widgets())).is_empty());
    };
    wrong(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object", "properties": {"x": {"type": "string"}}}}),
        ".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
    );
    wrong(
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["x"], "items": {"type": "object", "properties": {"x": {"type": "string"}}}}),
        ".items.properties[x].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
    );
    wrong(
        json!({"type": "object", "default": {"y": 1}, "properties": {"x": {"type": "string"}}}),
        r#".default: Invalid value: {"y":1}: must not have unknown fields"#,
    );
    // A schema that is not structural may stay so only where nothing is pruned.
    let loose = changed(
        with_schema(json!({"type": "object", "properties": {"a": {"description": "no type"}}})),
        &[("/spec/preserveUnknownFields", json!(true))],
    );
    updates(&loose, &loose, &[]);
    let none = changed(loose, &[("/spec/versions/0/schema", json!(null))]);
    updates(&none, &none, &[]);
    updates(
        &changed(none.clone(), &[("/spec/preserveUnknownFields", json!(false))]),
        &none,
        &["spec.versions[0].schema.openAPIV3Schema: Required value: because otherwise all fields are pruned"],
    );
}

#[test]
fn oversized_patterns_are_refused_without_compiling_each() {
    let schema = |pattern: &str| {
        let properties: serde_json::Map<_, _> =
            (0..600).map(|n| (format!("p{n}"), json!({"type": "string", "pattern": pattern}))).collect();
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})
    };
    let started = std::time::Instant::now();
    for pattern in ["(((a{100}){100}){100})", r"\p{L}{1000}", r"(\pL|\pN|.){1,900}"] {
        let errors = validate_create(&with_schema(schema(pattern)));
        assert!(errors.len() > 500, "{pattern}: {}", errors.len());
        assert!(errors[0].to_string().contains("must be a valid regular expression"), "{}", errors[0]);
    }
    // Compiling each up to the size limit takes minutes in a debug build.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
