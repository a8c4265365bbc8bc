//! The compiled mutations of a MutatingAdmissionPolicy, and the patches they lead to.

use orlop_api::{
    apply::{TypeRef, atomic_paths, merge, validate},
    group_version::GroupVersionKind,
    patch::{self, JsonPatch},
    schema::Schema,
    status::Status,
};
use orlop_cel::{AdmissionVariables, MessageValue, POLICY_COST_MAX, ReturnType, Value as CelValue};
use serde_json::{Value, json};

use super::super::{
    definition::{items, present, text},
    expression::{Evaluation, Expression, Expressions, OUT_OF_BUDGET, Stop},
};
use crate::matching::{ObjectInterfaces, Variables};

/// Cost from which an evaluation takes long.
const EXPENSIVE: u64 = 200_000;
/// Text with which the error of a failed `test` operation ends.
const TEST_FAILED: &str = "test failed";

/// The compiled mutations of a policy.
#[derive(Debug)]
pub(super) struct Mutator {
    expressions: Expressions,
    patches: Vec<Patch>,
    is_reinvoked_if_needed: bool,
}

/// A mutation.
#[derive(Debug)]
pub(super) enum Patch {
    ApplyConfiguration(Expression),
    JsonPatch(Expression),
}

/// Error of a mutation.
#[derive(Debug)]
pub(super) enum PatchError {
    /// The failure policy decides.
    Failed(String),
    /// The answer of the request.
    Status(Status),
}

impl PatchError {
    pub(super) fn out_of_budget() -> Self {
        Self::Failed(OUT_OF_BUDGET.to_owned())
    }
}

/// The patch that an expression evaluated to.
#[derive(Debug)]
pub(super) enum EvaluatedPatch {
    /// A configuration without apiVersion and kind.
    ApplyConfiguration(Value),
    /// A list of operations.
    JsonPatch(Value),
}

/// The result of a mutation's expression.
#[derive(Debug)]
pub(super) struct Evaluated {
    pub(super) patch: EvaluatedPatch,
    /// True if the evaluation took long.
    pub(super) is_expensive: bool,
}

impl Mutator {
    /// Compiles a policy.
    pub(super) fn compile(policy: &Value) -> Self {
        let spec = &policy["spec"];
        let expressions = Expressions::new(spec, present(spec, "paramKind").is_some());
        let declared = AdmissionVariables { patch_types: true, ..expressions.declared };
        let compile = |mutation: &Value| {
            let expression = |field: &str, returns| {
                expressions.compile(text(&mutation[field], "expression"), declared, returns)
            };
            match text(mutation, "patchType") {
                "JSONPatch" => Patch::JsonPatch(expression("jsonPatch", ReturnType::JsonPatch)),
                _ => Patch::ApplyConfiguration(expression(
                    "applyConfiguration",
                    ReturnType::ApplyConfiguration,
                )),
            }
        };
        Self {
            patches: items(spec, "mutations").iter().map(compile).collect(),
            is_reinvoked_if_needed: text(spec, "reinvocationPolicy") == "IfNeeded",
            expressions,
        }
    }

    pub(super) fn patches(&self) -> &[Patch] {
        &self.patches
    }

    pub(super) fn is_reinvoked_if_needed(&self) -> bool {
        self.is_reinvoked_if_needed
    }

    /// Evaluates a mutation's expression.
    pub(super) fn evaluate(
        &self,
        patch: &Patch,
        variables: &Variables<'_>,
    ) -> Result<Result<Evaluated, PatchError>, Stop> {
        let activation = variables.activation();
        let mut evaluation = Evaluation::new(&activation, &self.expressions.composition, POLICY_COST_MAX);
        let (Patch::ApplyConfiguration(expression) | Patch::JsonPatch(expression)) = patch;
        let value = evaluation.evaluate(expression)?;
        let is_expensive = evaluation.remaining() < POLICY_COST_MAX - EXPENSIVE;
        // A mutation that does not compile is reported without a prefix.
        let error = |message: String| {
            PatchError::Failed(
                message.strip_prefix("compilation error: ").map_or(message.clone(), str::to_owned),
            )
        };
        let evaluated = value.map_err(error).and_then(|value| {
            let patch = match patch {
                Patch::ApplyConfiguration(_) => configuration(&value).map(EvaluatedPatch::ApplyConfiguration),
                Patch::JsonPatch(_) => operations(&value).map(EvaluatedPatch::JsonPatch),
            };
            Ok(Evaluated { patch: patch.map_err(PatchError::Failed)?, is_expensive })
        });
        Ok(evaluated)
    }
}

/// Returns an apply configuration as JSON.
fn configuration(value: &CelValue<'_>) -> Result<Value, String> {
    check_type_names(value).map_err(|why| format!("type mismatch: {why}"))?;
    value.to_json().map_err(|error| error.to_string())
}

/// Returns the operations of a JSON patch.
fn operations(value: &CelValue<'_>) -> Result<Value, String> {
    let CelValue::List(list) = value else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut operations = Vec::with_capacity(list.len());
    for item in list.iter() {
        let CelValue::Message(message) = item.map_err(|error| error.to_string())? else {
            let why = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
            return Err(why.to_owned());
        };
        operations.push(operation(&message)?);
    }
    Ok(operations.into())
}

fn operation(message: &MessageValue<'_>) -> Result<Value, String> {
    let text = |field: &str| message.get(field).and_then(CelValue::as_str).unwrap_or_default();
    let mut operation = json!({"op": text("op"), "path": text("path")});
    if !text("from").is_empty() {
        operation["from"] = text("from").into();
    }
    if let Some(value) = message.get("value") {
        check_type_names(value).map_err(|why| format!("type mismatch: {why}"))?;
        operation["value"] = value.to_json().map_err(|error| {
            format!("JSONPath valueExpression evaluated to a type that could not marshal to JSON: {error}")
        })?;
    }
    Ok(operation)
}

/// Checks that the types of nested objects are named by the path of fields that lead to them. Lists and maps are not part
/// of a path.
fn check_type_names(value: &CelValue<'_>) -> Result<(), String> {
    let root = match value {
        CelValue::Message(message) => message.message.name.clone(),
        _ => return Ok(()),
    };
    let mut errors = Vec::new();
    check_below(value, &root, &mut errors);
    if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
}

fn check_below(value: &CelValue<'_>, expected: &str, errors: &mut Vec<String>) {
    match value {
        CelValue::Message(message) => {
            let name = &message.message.name;
            if name != expected {
                errors.push(format!(
                    "unexpected type name {name:?}, expected {expected:?}, which matches field name path from root \
                     Object type"
                ));
            }
            for (field, value) in &message.fields {
                check_below(value, &format!("{expected}.{field}"), errors);
            }
        }
        CelValue::List(list) => {
            list.iter().flatten().for_each(|item| check_below(&item, expected, errors));
        }
        CelValue::Map(map) => {
            let entries = map.entries().unwrap_or_default();
            entries.iter().for_each(|(_, value)| check_below(value, expected, errors));
        }
        _ => {}
    }
}

impl EvaluatedPatch {
    /// Applies the patch to an object.
    pub(super) fn apply(
        self,
        object: &Value,
        kind: &GroupVersionKind,
        objects: &dyn ObjectInterfaces,
    ) -> Result<Value, PatchError> {
        match self {
            Self::JsonPatch(operations) => apply_json_patch(object, &operations),
            Self::ApplyConfiguration(configuration) => {
                let mut merged = None;
                objects.with_schema(kind, &mut |schema| {
                    merged = Some(apply_configuration(object, configuration.clone(), schema));
                });
                match merged {
                    Some(merged) => {
                        merged.map_err(|why| PatchError::Failed(format!("error applying patch: {why}")))
                    }
                    None => Err(PatchError::Status(Status::service_unavailable(format!(
                        "Resource kind {kind} not found. There can be a delay between when CustomResourceDefinitions \
                         are created and when they are available."
                    )))),
                }
            }
        }
    }
}

/// Merges a configuration into an object by the rules of server-side apply. Nobody comes to own its fields.
fn apply_configuration(object: &Value, mut configuration: Value, schema: &Schema) -> Result<Value, String> {
    let of = TypeRef::resource(schema);
    for field in ["apiVersion", "kind"] {
        configuration[field] = object.get(field).cloned().unwrap_or_default();
    }
    validate(&configuration, of, false)
        .map_err(|errors| format!("failed to convert patch object to typed object: {errors}"))?;
    let atomics = atomic_paths(&configuration, of);
    if !atomics.is_empty() {
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        ));
    }
    validate(object, of, true)
        .map_err(|errors| format!("failed to convert original object to typed object: {errors}"))?;
    merge(object, &configuration, of).map_err(|errors| format!("failed to merge patch: {errors}"))
}

/// Applies a JSON patch. If a `test` operation fails, the object stays as it is.
fn apply_json_patch(object: &Value, operations: &Value) -> Result<Value, PatchError> {
    let failed = |error: patch::PatchError| PatchError::Failed(format!("JSON Patch: {error}"));
    let patch = JsonPatch::decode(operations.to_string().as_bytes()).map_err(failed)?;
    match patch.apply(object) {
        Err(patch::PatchError::DoesNotApply(why)) if why.ends_with(TEST_FAILED) => Ok(object.clone()),
        applied => applied.map_err(failed),
    }
}
