//! JSON as requests may use it: one reading, or none (I-JSON, RFC 7493).
//!
//! `serde_json` takes the last of two equal keys and numbers that other readers would round. Here a key that appears twice
//! in one object and an integer beyond 2^53 are refused before anything is made of the document, so that what is hashed for
//! an idempotency key, what is executed and what is recorded can only be the same thing.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Largest integer that every JSON reader keeps exactly (RFC 7493, 2.2).
const INTEGER_MAX: u64 = (1 << 53) - 1;

/// Reads one document.
///
/// # Errors
/// Where the text stops being JSON of that kind; the message never repeats the document.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let Strict(value) = Strict::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> DeserializeSeed<'de> for StrictVisitor {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        if value > INTEGER_MAX { Err(E::custom("an integer beyond 2^53")) } else { Ok(value.into()) }
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > INTEGER_MAX {
            Err(E::custom("an integer beyond 2^53"))
        } else {
            Ok(value.into())
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(StrictVisitor)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(StrictVisitor)?;
            if object.insert(key, value).is_some() {
                return Err(A::Error::custom("a key appears twice in one object"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ordinary_documents_are_read_as_they_are() {
        let text = br#"{"a":[1,-2,1.5,true,null,"x"],"b":{"c":{}}}"#;
        assert_eq!(parse(text).unwrap(), json!({"a": [1, -2, 1.5, true, null, "x"], "b": {"c": {}}}));
    }

    #[test]
    fn documents_with_two_readings_are_refused() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"env":{"A":"1","\u0041":"2"}}"#,
            r#"[{"x":{"y":0,"y":0}}]"#,
            "9007199254740992",
            "-9007199254740992",
            "18446744073709551616000000000000000000000e400",
            "1 2",
            "",
            "NaN",
            "\u{feff}{}",
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "\"a\u{0}b\"",
            "{\"a\":1,}",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err(), "not UTF-8");
        assert!(parse("[".repeat(100_000).as_bytes()).is_err(), "nesting is bounded");
        assert_eq!(parse(b"9007199254740991").unwrap(), json!(9_007_199_254_740_991_u64));
    }
}
