//! The `.proto` of a kind: validated against the envelopes of [`crate::wire`], and used to convert specs and statuses to
//! JSON and back.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind as FieldKind, MessageDescriptor,
    MethodDescriptor, SerializeOptions,
};
use serde_json::Value;

use crate::kinds::Kind;

const META: &str = "nvidia.nvsentinel.v1alpha1";

/// A `.proto` that does not fit the envelopes.
#[derive(Debug, thiserror::Error)]
#[error("kind {kind}: {why}")]
pub struct ShapeError {
    kind: &'static str,
    why: String,
}

/// The parts of an object that differ from kind to kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Spec,
    Status,
}

impl Part {
    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Status => "status",
        }
    }
}

/// Descriptors of a kind's own messages.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    spec: MessageDescriptor,
    status: MessageDescriptor,
}

/// Required type of a field.
enum Field<'a> {
    Text,
    Bytes,
    /// A shared message, by name.
    Shared(&'static str),
    /// A message of the kind.
    Own(&'a MessageDescriptor),
}

impl Shape {
    /// Validates the methods and messages of a kind's `.proto`.
    pub(crate) fn of(kind: &Kind) -> Result<Self, ShapeError> {
        validate(kind).map_err(|why| ShapeError { kind: kind.kind, why })
    }

    pub(crate) fn descriptor(&self, part: Part) -> &MessageDescriptor {
        match part {
            Part::Spec => &self.spec,
            Part::Status => &self.status,
        }
    }

    /// Converts protobuf to JSON.
    pub(crate) fn decode(&self, part: Part, bytes: Bytes) -> Result<Value, String> {
        let message = DynamicMessage::decode(self.descriptor(part).clone(), bytes)
            .map_err(|error| format!("{}: {error}", part.name()))?;
        to_json(part, &message)
    }

    /// Converts JSON to protobuf. Unknown fields are dropped.
    pub(crate) fn encode(&self, part: Part, value: &Value) -> Result<Bytes, String> {
        Ok(self.message(part, value)?.encode_to_vec().into())
    }

    /// Normalizes JSON: known fields only, each with the type of the `.proto`. Equivalent parts are equal afterwards. Null
    /// stays null.
    pub(crate) fn normalize(&self, part: Part, value: &Value) -> Result<Value, String> {
        if value.is_null() {
            return Ok(Value::Null);
        }
        to_json(part, &self.message(part, value)?)
    }

    fn message(&self, part: Part, value: &Value) -> Result<DynamicMessage, String> {
        let options = DeserializeOptions::new().deny_unknown_fields(false);
        DynamicMessage::deserialize_with_options(self.descriptor(part).clone(), value, &options)
            .map_err(|error| format!("{}: {error}", part.name()))
    }
}

fn to_json(part: Part, message: &DynamicMessage) -> Result<Value, String> {
    // Kubernetes' JSON has 64-bit integers as numbers, and fields with default values, such as a condition's empty message.
    let options = SerializeOptions::new().stringify_64_bit_integers(false).skip_default_fields(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .map_err(|error| format!("{}: {error}", part.name()))
}

fn validate(kind: &Kind) -> Result<Shape, String> {
    let pool = DescriptorPool::decode(kind.descriptors).map_err(|error| error.to_string())?;
    let service = pool
        .get_service_by_name(kind.service)
        .ok_or_else(|| format!("its descriptors have no service {}", kind.service))?;
    let method = |name: String| {
        service.methods().find(|m| m.name() == name).ok_or_else(|| format!("{} lacks {name}", kind.service))
    };
    let (noun, text, opts) = (kind.noun, Field::Text, Field::Shared);

    let get = method(format!("Get{noun}"))?;
    let object = message_of(&get.output(), 1)?;
    let (spec, status) = (message_of(&object, 3)?, message_of(&object, 4)?);
    validate_fields(&object, &[(1, opts("TypeMeta")), (2, opts("ObjectMeta"))])?;
    validate_fields(&get.input(), &[(1, text), (2, Field::Text), (3, opts("GetOptions"))])?;

    let list = method(format!("List{noun}s"))?;
    let items = message_of(&list.output(), 1)?;
    validate_fields(&items, &[(1, opts("TypeMeta")), (2, opts("ListMeta")), (3, Field::Own(&object))])?;
    let watch = method(format!("Watch{noun}s"))?;
    validate_fields(&watch.output(), &[(1, Field::Text), (2, Field::Own(&object))])?;
    for method in [&list, &watch] {
        validate_fields(&method.input(), &[(1, Field::Text), (2, opts("ListOptions"))])?;
    }

    let patch = method(format!("Patch{noun}"))?;
    let patched = [(1, Field::Text), (2, Field::Text), (3, Field::Text), (4, Field::Bytes), (6, Field::Text)];
    validate_fields(&patch.input(), &patched)?;
    let delete = method(format!("Delete{noun}"))?;
    validate_fields(&delete.input(), &[(1, Field::Text), (2, Field::Text), (3, opts("DeleteOptions"))])?;

    let writes = [format!("Create{noun}"), format!("Update{noun}"), format!("Update{noun}Status")];
    for name in writes {
        let write = method(name)?;
        validate_fields(&write.input(), &[(1, Field::Own(&object))])?;
        validate_output(&write, &object)?;
    }
    validate_output(&patch, &object)?;
    if service.methods().any(|method| method.is_server_streaming() != (method == watch)) {
        return Err(format!("{} must be the only streaming method", watch.full_name()));
    }
    Ok(Shape { spec, status })
}

/// Returns the message of a field.
fn message_of(message: &MessageDescriptor, number: u32) -> Result<MessageDescriptor, String> {
    match message.get_field(number).map(|field| field.kind()) {
        Some(FieldKind::Message(inner)) => Ok(inner),
        _ => Err(format!("field {number} of {} must be a message", message.full_name())),
    }
}

fn validate_output(method: &MethodDescriptor, object: &MessageDescriptor) -> Result<(), String> {
    if method.output() == *object {
        return Ok(());
    }
    Err(format!("{} must return {}", method.full_name(), object.full_name()))
}

fn validate_fields(message: &MessageDescriptor, wanted: &[(u32, Field<'_>)]) -> Result<(), String> {
    for (number, wanted) in wanted {
        let found = message.get_field(*number).map(|field| field.kind());
        let fits = match (wanted, &found) {
            (Field::Text, Some(FieldKind::String)) | (Field::Bytes, Some(FieldKind::Bytes)) => true,
            (Field::Shared(name), Some(FieldKind::Message(m))) => m.full_name() == format!("{META}.{name}"),
            (Field::Own(object), Some(FieldKind::Message(m))) => m == *object,
            _ => false,
        };
        if !fits {
            return Err(format!("field {number} of {} does not match meta.proto", message.full_name()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use orlop_device_client::api::{Condition, GpuSpec, GpuStatus};
    use serde_json::json;

    use super::*;
    use crate::kinds::GPU;

    #[test]
    fn spec_and_status_round_trip_through_kubernetes_json() {
        let shape = Shape::of(&GPU).unwrap();
        let spec = GpuSpec { uuid: "GPU-1".into() }.encode_to_vec();
        assert_eq!(shape.decode(Part::Spec, spec.clone().into()).unwrap(), json!({"uuid": "GPU-1"}));
        let condition = Condition {
            r#type: "Ready".into(),
            status: "True".into(),
            observed_generation: Some(3),
            last_transition_time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            ..Condition::default()
        };
        let status = GpuStatus { conditions: vec![condition], recommended_action: None }.encode_to_vec();
        let value = shape.decode(Part::Status, status.clone().into()).unwrap();
        let expected = json!({"conditions": [{
            "type": "Ready", "status": "True", "observedGeneration": 3,
            "lastTransitionTime": "1970-01-01T00:00:01Z", "reason": "", "message": "",
        }]});
        assert_eq!(value, expected);
        assert_eq!(shape.encode(Part::Status, &value).unwrap(), status);
        assert_eq!(shape.normalize(Part::Status, &value).unwrap(), value);
    }

    #[test]
    fn unknown_fields_are_dropped_and_wrong_types_rejected() {
        let shape = Shape::of(&GPU).unwrap();
        let normal = shape.normalize(Part::Spec, &json!({"uuid": "GPU-1", "color": "red"})).unwrap();
        assert_eq!(normal, json!({"uuid": "GPU-1"}));
        assert!(shape.normalize(Part::Spec, &json!({"uuid": 5})).unwrap_err().starts_with("spec: "));
        assert!(shape.normalize(Part::Spec, &json!("text")).is_err());
        assert!(shape.decode(Part::Spec, Bytes::from_static(b"\xff")).is_err());
    }

    #[test]
    fn kind_with_a_mismatched_proto_is_rejected_by_name() {
        let other = Kind { service: "nvidia.nvsentinel.v1alpha1.Nothing", ..copy(&GPU) };
        assert!(Shape::of(&other).unwrap_err().to_string().contains("no service"));
        let other = Kind { noun: "Card", ..copy(&GPU) };
        assert!(Shape::of(&other).unwrap_err().to_string().contains("lacks GetCard"));
    }

    fn copy(kind: &Kind) -> Kind {
        Kind { ..*kind }
    }
}
