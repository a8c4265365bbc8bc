//! Type checking of the expressions of a ValidatingAdmissionPolicy.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, NamedRuleWithOperations, ValidatingAdmissionPolicy,
};
use orlop_api::group_version::{GroupVersion, GroupVersionKind};
use orlop_cel::{AdmissionVariables, ExpressionCompiler, Schema, SchemaSpec};
use serde_json::Value;

/// Types that a policy is checked against, at most.
pub(super) const TYPES_MAX: usize = 10;

/// The types that a policy is checked against.
#[derive(Debug)]
pub(super) struct Types {
    /// Kinds of objects, in order.
    pub(super) objects: Vec<(GroupVersionKind, Schema)>,
    /// Absent if the policy has none, or of an unknown type.
    pub(super) params: Option<Schema>,
    pub(super) has_params: bool,
}

/// Returns the resources whose types a policy's rules name. Rules with wildcards for groups or versions name none.
pub(super) fn resources_to_check(
    policy: &ValidatingAdmissionPolicy,
) -> BTreeMap<GroupVersion, BTreeSet<String>> {
    let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
    let rules = constraints.and_then(|constraints| constraints.resource_rules.as_deref());
    let mut found: BTreeMap<GroupVersion, BTreeSet<String>> = BTreeMap::new();
    for rule in rules.unwrap_or_default() {
        let NamedRuleWithOperations { api_groups, api_versions, resources, .. } = rule;
        let (groups, versions) =
            (api_groups.as_deref().unwrap_or_default(), api_versions.as_deref().unwrap_or_default());
        if groups.iter().chain(versions).any(|name| name.contains('*')) {
            continue;
        }
        let resources = resources.as_deref().unwrap_or_default().iter();
        let plain: BTreeSet<String> = resources.filter(|name| !name.contains(['*', '/'])).cloned().collect();
        if plain.is_empty() {
            continue;
        }
        for (group, version) in
            groups.iter().flat_map(|group| versions.iter().map(move |version| (group, version)))
        {
            found.entry(GroupVersion::new(group, version)).or_default().extend(plain.iter().cloned());
        }
    }
    found
}

/// Finds the schema of a kind in an OpenAPI document.
pub(super) fn schema_of(document: &Value, kind: &GroupVersionKind) -> Option<Schema> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let is_kind = |schema: &&Value| {
        let kinds = schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array);
        kinds.into_iter().flatten().any(|named| {
            let text = |field: &str| named.get(field).and_then(Value::as_str).unwrap_or_default();
            (text("group"), text("version"), text("kind"))
                == (kind.group.as_str(), kind.version.as_str(), kind.kind.as_str())
        })
    };
    let found = schemas.values().find(is_kind)?;
    let resolve =
        |reference: &str| schemas.get(reference.strip_prefix("#/components/schemas/").unwrap_or(reference));
    // Parts whose type the schema does not say are not checked.
    let spec = SchemaSpec::from_openapi(found, &resolve).into_lenient();
    Schema::new(&kind.kind, &spec, true)
}

/// Checks the validations and messages of a policy. Returns the warnings of its status.
pub(super) fn check(policy: &ValidatingAdmissionPolicy, types: &Types) -> Vec<ExpressionWarning> {
    let Some(spec) = &policy.spec else { return Vec::new() };
    let declared = AdmissionVariables { params: types.has_params, authorizer: true, patch_types: false };
    let compiler = |(kind, schema): &(GroupVersionKind, Schema)| {
        let mut compiler = ExpressionCompiler::for_type_checking(Some(schema.clone()), types.params.clone());
        for variable in spec.variables.as_deref().unwrap_or_default() {
            // An error of a variable is reported where it is used, as an unknown type.
            let _ = compiler.compile_variable(&variable.name, &variable.expression, declared);
        }
        (kind.clone(), compiler)
    };
    let compilers: Vec<(GroupVersionKind, ExpressionCompiler)> = types.objects.iter().map(compiler).collect();
    let check = |field: String, expression: &str| {
        let results = compilers.iter().filter_map(|(kind, compiler)| {
            compiler.check(expression, declared).err().map(|errors| format!("{kind}: {errors}\n"))
        });
        let results: Vec<String> = results.collect();
        let warning = ExpressionWarning { field_ref: field, warning: results.join("\n") };
        (!results.is_empty()).then_some(warning)
    };
    let mut warnings = Vec::new();
    for (index, validation) in spec.validations.as_deref().unwrap_or_default().iter().enumerate() {
        warnings.extend(check(format!("spec.validations[{index}].expression"), &validation.expression));
        if let Some(message) = validation.message_expression.as_deref().filter(|message| !message.is_empty())
        {
            warnings.extend(check(format!("spec.validations[{index}].messageExpression"), message));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: Value) -> ValidatingAdmissionPolicy {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    fn types(kinds: &[&str]) -> Types {
        let document = |kind: &str| {
            json!({"components": {"schemas": {
                "A": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": kind}],
                    "properties": {"spec": {"allOf": [{"$ref": "#/components/schemas/B"}], "default": {}}}},
                "B": {"type": "object", "properties": {"replicas": {"type": "integer"}, "any": {}}},
            }}})
        };
        let objects = kinds.iter().map(|kind| {
            let kind = GroupVersionKind::new("apps", "v1", *kind);
            let schema = schema_of(&document(&kind.kind), &kind).unwrap();
            (kind, schema)
        });
        Types { objects: objects.collect(), params: None, has_params: false }
    }

    #[test]
    fn warnings_have_kubernetes_texts() {
        let policy = policy(json!({
            "variables": [{"name": "replicas", "expression": "object.spec.replicas"}],
            "validations": [
                {"expression": "object.spec.replicas > 1 && object.metadata.name != '' && object.spec.any.thing == 1"},
                {"expression": "object.replicas > 1"},
                {"expression": "variables.replicas == '1'", "messageExpression": "object.spec.replica"},
            ],
        }));
        let warnings = check(&policy, &types(&["Deployment", "ReplicaSet"]));
        let found: Vec<(&str, &str)> =
            warnings.iter().map(|warning| (warning.field_ref.as_str(), warning.warning.as_str())).collect();
        assert_eq!(
            found,
            [
                (
                    "spec.validations[1].expression",
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n\n\
                     apps/v1, Kind=ReplicaSet: ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1\n | ......^\n"
                ),
                (
                    "spec.validations[2].expression",
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(int, string)'\n | variables.replicas == '1'\n | ...................^\n\n\
                     apps/v1, Kind=ReplicaSet: ERROR: <input>:1:20: found no matching overload for '_==_' applied to '(int, string)'\n | variables.replicas == '1'\n | ...................^\n"
                ),
                (
                    "spec.validations[2].messageExpression",
                    "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'replica'\n | object.spec.replica\n | ...........^\n\n\
                     apps/v1, Kind=ReplicaSet: ERROR: <input>:1:12: undefined field 'replica'\n | object.spec.replica\n | ...........^\n"
                ),
            ]
        );
    }

    #[test]
    fn wildcards_and_subresources_are_not_checked() {
        let rule = |groups: &[&str], versions: &[&str], resources: &[&str]| json!({"apiGroups": groups, "apiVersions": versions, "resources": resources, "operations": ["*"]});
        let rules = json!([
            rule(&["apps", "batch"], &["v1"], &["deployments", "deployments/scale"]),
            rule(&["*"], &["v1"], &["pods"]),
            rule(&[""], &["v*"], &["pods"]),
            rule(&[""], &["v1"], &["pods/*"]),
        ]);
        let found = resources_to_check(&policy(json!({"matchConstraints": {"resourceRules": rules}})));
        let deployments = BTreeSet::from(["deployments".to_owned()]);
        assert_eq!(
            found,
            BTreeMap::from([
                (GroupVersion::new("apps", "v1"), deployments.clone()),
                (GroupVersion::new("batch", "v1"), deployments)
            ])
        );
    }
}
