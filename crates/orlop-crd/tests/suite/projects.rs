//! Definitions shaped like those of real projects: deep, generated, with rules.

use crate::widgets::{read, with_schema};
use orlop_crd::{Definition, apply_defaults, validate_create, warnings};
use serde_json::{Value, json};

fn accepted(mut source: Value) -> Definition {
    apply_defaults(&mut source);
    assert_eq!(
        validate_create(&source).iter().map(ToString::to_string).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    read(&source)
}

/// A schema as `#[derive(CustomResource)]` with `#[derive(CELSchema)]` generates it: enums with data, options, flattened maps.
#[test]
fn derived_by_kube_rs() {
    let mut source = with_schema(json!({
        "type": "object", "title": "Document", "required": ["spec"], "description": "Auto-generated derived type for DocumentSpec via `CustomResource`",
        "properties": {
            "spec": {
                "type": "object", "required": ["title", "backend", "replicas"],
                "properties": {
                    "title": {"type": "string", "maxLength": 64, "minLength": 1},
                    "hide": {"type": "boolean", "default": false},
                    "replicas": {"type": "integer", "format": "int32", "default": 1, "minimum": 0.0},
                    "limit": {"type": "integer", "format": "uint32", "minimum": 0.0, "nullable": true},
                    "backend": {
                        "type": "object",
                        "oneOf": [{"required": ["disk"]}, {"required": ["memory"]}],
                        "properties": {
                            "disk": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}},
                            "memory": {"type": "object", "properties": {"bytes": {"type": "integer", "format": "int64", "nullable": true}}},
                        },
                    },
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}},
                    "amount": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "nullable": true},
                    "raw": {"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true},
                    "mode": {"type": "string", "enum": ["Fast", "Safe"], "default": "Safe"},
                },
                "x-kubernetes-validations": [
                    {"rule": "self.mode != 'Fast' || has(self.backend.memory)", "message": "fast needs memory", "fieldPath": ".mode"},
                    {"rule": "self.title == oldSelf.title", "message": "title is immutable", "reason": "FieldValueForbidden", "fieldPath": ".title"},
                    {"rule": "self.replicas >= oldSelf.optMap(old, old.replicas).orValue(0)", "optionalOldSelf": true, "messageExpression": "'cannot shrink to %d'.format([self.replicas])"},
                ],
            },
            "status": {"type": "object", "nullable": true, "required": ["hidden"], "properties": {"hidden": {"type": "boolean"}}},
        },
    }));
    source["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    source["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
    assert_eq!(warnings(&source, None), [r#"unrecognized format "uint32""#]);
    let definition = accepted(source);
    let version = definition.version("v1").unwrap();
    let object = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "d", "namespace": "n", "resourceVersion": "1"}, "spec": spec});
    let base = json!({"title": "t", "replicas": 2, "mode": "Safe", "backend": {"disk": {"path": "/"}}, "amount": "5%"});
    let with = |key: &str, value: Value| {
        let mut spec = base.clone();
        spec[key] = value;
        object(spec)
    };
    let create = |object: Value| {
        version.validate_create(&object).errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let update = |object: Value| {
        version
            .validate_update(&object, &with("hide", json!(true)))
            .errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    assert_eq!(create(object(base.clone())), Vec::<String>::new());
    assert_eq!(create(with("mode", json!("Fast"))), ["spec.mode: Invalid value: fast needs memory"]);
    assert_eq!(
        create(with("backend", json!({}))),
        [
            r#"<nil>: Invalid value: "": "spec.backend" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.backend.disk: Required value",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
        ]
    );
    assert_eq!(update(with("title", json!("u"))), ["spec.title: Forbidden: title is immutable"]);
    assert_eq!(update(with("replicas", json!(1))), ["spec: Invalid value: cannot shrink to 1"]);
}

/// A schema like cert-manager's Certificate: many optional strings, patterns, nested lists of objects.
#[test]
fn like_a_certificate() {
    let reference = json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "kind": {"type": "string"}, "group": {"type": "string"}}});
    let keystore = json!({"type": "object", "required": ["create"], "properties": {"create": {"type": "boolean"}, "alias": {"type": "string", "maxLength": 250},
        "passwordSecretRef": {"type": "object", "required": ["name"], "properties": {"key": {"type": "string"}, "name": {"type": "string"}}}, "password": {"type": "string", "minLength": 1}},
        "x-kubernetes-validations": [{"rule": "!(has(self.password) && has(self.passwordSecretRef))", "message": "password and passwordSecretRef exclude each other"}]});
    let source = with_schema(
        json!({"type": "object", "description": "A Certificate resource should be created …", "properties": {
            "apiVersion": {"type": "string", "description": "APIVersion defines …"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": {"type": "object", "required": ["issuerRef", "secretName"], "properties": {
                "commonName": {"type": "string"}, "dnsNames": {"type": "array", "items": {"type": "string"}}, "duration": {"type": "string"}, "renewBeforePercentage": {"type": "integer", "format": "int32"},
                "issuerRef": reference, "secretName": {"type": "string"}, "revisionHistoryLimit": {"type": "integer", "format": "int32"},
                "keystores": {"type": "object", "properties": {"jks": keystore, "pkcs12": keystore}},
                "additionalOutputFormats": {"type": "array", "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string", "enum": ["DER", "CombinedPEM"]}}}},
                "usages": {"type": "array", "items": {"type": "string", "enum": ["signing", "digital signature", "server auth"]}},
                "privateKey": {"type": "object", "properties": {"algorithm": {"type": "string", "enum": ["RSA", "ECDSA", "Ed25519"]}, "size": {"type": "integer"}, "rotationPolicy": {"type": "string", "enum": ["Never", "Always"]}}},
            }},
            "status": {"type": "object", "properties": {
                "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"], "items": {"type": "object", "required": ["status", "type"], "properties": {
                    "lastTransitionTime": {"type": "string", "format": "date-time"}, "message": {"type": "string"}, "observedGeneration": {"type": "integer", "format": "int64"},
                    "reason": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "type": {"type": "string"}}}},
                "notAfter": {"type": "string", "format": "date-time"}, "revision": {"type": "integer"}}},
        }}),
    );
    let definition = accepted(source);
    let version = definition.version("v1").unwrap();
    let certificate = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "c", "namespace": "n"},
        "spec": {"secretName": "s", "issuerRef": {"name": "i"}, "dnsNames": ["a.example.com"], "usages": ["signing", "juggling"], "keystores": {"jks": {"create": true, "password": "p", "passwordSecretRef": {"name": "x"}}}}});
    let errors: Vec<_> =
        version.validate_create(&certificate).errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors[0],
        r#"spec.usages[1]: Unsupported value: "juggling": supported values: "signing", "digital signature", "server auth""#
    );
    let mut good = certificate;
    good["spec"]["usages"] = json!(["signing"]);
    let errors: Vec<_> = version.validate_create(&good).errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        ["spec.keystores.jks: Invalid value: password and passwordSecretRef exclude each other"]
    );
}

/// A schema like Cluster API's Cluster: two versions, a webhook, conditions, variables of any shape, rules on lists.
#[test]
fn like_a_cluster() {
    let schema = |extra: Value| {
        let mut schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "minProperties": 1, "properties": {
                "paused": {"type": "boolean"},
                "clusterNetwork": {"type": "object", "properties": {"serviceDomain": {"type": "string", "maxLength": 253, "minLength": 1},
                    "pods": {"type": "object", "required": ["cidrBlocks"], "properties": {"cidrBlocks": {"type": "array", "maxItems": 100, "minItems": 1, "x-kubernetes-list-type": "atomic", "items": {"type": "string", "maxLength": 43, "minLength": 1}}},
                        "x-kubernetes-validations": [{"rule": "self.cidrBlocks.all(c, isCIDR(c))", "message": "cidrBlocks must be CIDRs"}]}}},
                "topology": {"type": "object", "required": ["classRef", "version"], "properties": {
                    "classRef": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}}},
                    "version": {"type": "string", "maxLength": 256},
                    "variables": {"type": "array", "maxItems": 1000, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name", "value"], "properties": {"name": {"type": "string", "maxLength": 256}, "value": {"x-kubernetes-preserve-unknown-fields": true}}}},
                    "workers": {"type": "array", "maxItems": 200, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {"type": "object", "required": ["name", "class"], "properties": {
                        "name": {"type": "string", "maxLength": 63}, "class": {"type": "string", "maxLength": 256}, "replicas": {"type": "integer", "format": "int32"},
                        "failureDomain": {"type": "string", "maxLength": 256}, "minReadySeconds": {"type": "integer", "format": "int32", "minimum": 0}},
                        "x-kubernetes-validations": [{"rule": "self.class == oldSelf.class", "message": "class cannot change"}]}},
                }},
            }},
            "status": {"type": "object", "minProperties": 1, "properties": {"phase": {"type": "string", "enum": ["Pending", "Provisioned"]}, "selector": {"type": "string"}, "replicas": {"type": "integer"}}},
        }});
        schema["properties"]["spec"]["properties"]["extra"] = extra;
        schema
    };
    let mut source = with_schema(schema(json!({"type": "string"})));
    let mut old = source["spec"]["versions"][0].clone();
    old["name"] = json!("v1beta1");
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    old["schema"]["openAPIV3Schema"] = schema(json!({"type": "integer"}));
    source["spec"]["versions"].as_array_mut().unwrap().push(old);
    source["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1", "v1beta1"], "clientConfig": {"service": {"namespace": "capi-system", "name": "capi-webhook-service", "path": "/convert"}}}});
    for version in source["spec"]["versions"].as_array_mut().unwrap() {
        version["subresources"] = json!({"status": {}});
        version["additionalPrinterColumns"] = json!([{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]);
    }
    let definition = accepted(source);
    assert_eq!(
        definition.version("v1beta1").unwrap().warning().unwrap(),
        "example.com/v1beta1 Widget is deprecated; use example.com/v1 Widget"
    );
    let version = definition.version("v1").unwrap();
    let cluster = |class: &str, cidr: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"}, "spec": {
        "clusterNetwork": {"pods": {"cidrBlocks": [cidr]}}, "topology": {"classRef": {"name": "q"}, "version": "v1.35.0", "variables": [{"name": "any", "value": {"deep": [1]}}], "workers": [{"name": "md", "class": class}]}}})
    };
    let errors =
        |found: orlop_crd::ValidationResult| found.errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(errors(version.validate_create(&cluster("a", "10.0.0.0/8"))), Vec::<String>::new());
    assert_eq!(
        errors(version.validate_create(&cluster("a", "10.0.0.0"))),
        ["spec.clusterNetwork.pods: Invalid value: cidrBlocks must be CIDRs"]
    );
    assert_eq!(
        errors(version.validate_update(&cluster("b", "10.0.0.0/8"), &cluster("a", "10.0.0.0/8"))),
        ["spec.topology.workers[0]: Invalid value: class cannot change"]
    );
}

/// A schema like Argo CD's Application: one or many sources, lists of parameters, preserved unknown objects.
#[test]
fn like_an_application() {
    let source_schema = json!({"type": "object", "required": ["repoURL"], "properties": {"repoURL": {"type": "string"}, "path": {"type": "string"}, "chart": {"type": "string"}, "targetRevision": {"type": "string"},
        "helm": {"type": "object", "properties": {"parameters": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "string"}, "forceString": {"type": "boolean"}}}},
            "valuesObject": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}, "skipCrds": {"type": "boolean"}}}}});
    let schema = json!({"type": "object", "required": ["metadata", "spec"], "properties": {
        "metadata": {"type": "object"},
        "operation": {"type": "object", "properties": {"retry": {"type": "object", "properties": {"limit": {"type": "integer", "format": "int64"}, "backoff": {"type": "object", "properties": {"factor": {"type": "integer", "format": "int64"}, "duration": {"type": "string"}}}}}}},
        "spec": {"type": "object", "required": ["destination", "project"], "properties": {
            "project": {"type": "string"}, "source": source_schema, "sources": {"type": "array", "items": source_schema},
            "destination": {"type": "object", "properties": {"server": {"type": "string"}, "name": {"type": "string"}, "namespace": {"type": "string"}}},
            "ignoreDifferences": {"type": "array", "items": {"type": "object", "required": ["kind"], "properties": {"group": {"type": "string"}, "kind": {"type": "string"}, "jsonPointers": {"type": "array", "items": {"type": "string"}}}}},
            "syncPolicy": {"type": "object", "properties": {"automated": {"type": "object", "properties": {"prune": {"type": "boolean"}, "selfHeal": {"type": "boolean"}}}, "syncOptions": {"type": "array", "items": {"type": "string"}}}},
        }},
        "status": {"type": "object", "properties": {"sync": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}, "revision": {"type": "string"}}}, "health": {"type": "object", "properties": {"status": {"type": "string"}}},
            "resources": {"type": "array", "items": {"type": "object", "properties": {"kind": {"type": "string"}, "syncWave": {"type": "integer", "format": "int64"}}}}}},
    }});
    let mut source = with_schema(schema);
    source["spec"]["versions"][0]["subresources"] = json!({});
    source["spec"]["versions"][0]["additionalPrinterColumns"] = json!([
        {"jsonPath": ".status.sync.status", "name": "Sync Status", "type": "string"},
        {"jsonPath": ".status.health.status", "name": "Health Status", "type": "string"},
        {"jsonPath": ".spec.project", "name": "Project", "priority": 10, "type": "string"},
    ]);
    let definition = accepted(source);
    let version = definition.version("v1").unwrap();
    let application = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "namespace": "argocd"}, "spec": {"project": "default", "destination": {}, "source": {"repoURL": "https://x", "helm": {"valuesObject": {"a": {"b": [1, null]}}}}}, "status": {"sync": {"status": "Synced"}}});
    let mut kept = application.clone();
    assert!(
        orlop_api::schema::prune(&mut kept, version.schema(), orlop_api::schema::Root::Resource).is_empty()
    );
    assert_eq!(version.validate_create(&application).errors, []);
    assert_eq!(
        version.columns().cells(&application, orlop_api::time::Time::from_unix(0)),
        [json!("a"), json!("Synced"), json!(null), json!("default")]
    );
}
