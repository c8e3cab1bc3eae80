"""Values as JSON: for every type what a column usually holds, and what fits it in no way."""

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

INVALID: list[tuple[PrimitiveType, str]] = [
    (BooleanType(), '"true"'),
    (BooleanType(), "1"),
    (LongType(), "9223372036854775808"),
    (LongType(), "-9223372036854775809"),
    (LongType(), "1.5"),
    (LongType(), "1e30"),
    (LongType(), "1e999999999"),
    (LongType(), "1e-9999999"),
    (LongType(), '"1e99999999999999999999"'),
    (LongType(), '"0x1F"'),
    (LongType(), '"0X1F"'),
    (LongType(), '"1_000"'),
    (LongType(), '" 1"'),
    (LongType(), '""'),
    (LongType(), "true"),
    (LongType(), "[1]"),
    (IntegerType(), "2147483648"),
    (IntegerType(), "-2147483649"),
    (IntegerType(), "1e30"),
    (IntegerType(), "1.5"),
    (DoubleType(), "1e400"),
    (DoubleType(), '"1e400"'),
    (DoubleType(), '"inf"'),
    (DoubleType(), '"nan"'),
    (DoubleType(), "false"),
    *(
        (DecimalType(9, 2), json)
        for json in (
            *("10000000", "-10000000.00", "9999999.995", "0.001", "1e7", "1e-3", "1E+999999999", "1e-999999999"),
            *('"1e99999999999999999999"', '"0x10"', '"1_0"', '" 1"', '""', '"."', '"NaN"', '"Infinity"', "true", "[1]"),
            "340282366920938463463374607431768211457",  # 2¹²⁸ + 1, which 128 bits have as 1
        )
    ),
    (DecimalType(38, 0), "170141183460469231731687303715884105728"),
    (DecimalType(38, 0), "100000000000000000000000000000000000000"),
    (DecimalType(38, 0), "0.1"),
    (DecimalType(38, 0), "1e-39"),
    (DecimalType(38, 0), "1e-77"),
    (DecimalType(38, 38), "4.0"),
    (DecimalType(38, 30), "680564733.841876926926749214863536422912"),  # with thirty places 2¹²⁸ + a little
    (DecimalType(38, 30), "34028236.6920938463463374607431768211456"),  # the digits of 2¹²⁸
    (BinaryType(), '"aGVsbG8"'),
    (BinaryType(), '"aGVs bG8="'),
    (BinaryType(), '"YQ==\\",\\"YQ=="'),
    (BinaryType(), '"\\\\u0041AAA"'),  # base64 only after JSON's escapes are read a second time
    (BinaryType(), "1234"),
    (DateType(), '"2023-02-29"'),
    (DateType(), '"2023-02-28T00:00:00Z"'),
    (DateType(), "20230228"),
    (TimestamptzType(), '"2024-01-02"'),
    (TimestamptzType(), '"2024-01-02T03:04"'),
    (TimestamptzType(), '"2024-01-02-05:00"'),  # in XML, a date with an offset
    (TimestamptzType(), '"2024-01-02_03:04:05"'),
    (TimestamptzType(), '"2024-01-02303:04:05Z"'),
    (TimestamptzType(), '"2024-01-02é03:04:05Z"'),
    (TimestamptzType(), '"2024-01-02TT03:04:05Z"'),
    (TimestamptzType(), '"2024-01-02T03:04:05+"'),
    (TimestamptzType(), '"2024-01-02T25:04:05"'),
    (TimestamptzType(), '"2024-02-30T03:04:05"'),
    (TimestamptzType(), '"2024-01-02T24:00:00Z"'),
    (TimestamptzType(), '"2024-01-02T03:04:61Z"'),
    (TimestamptzType(), '"2023-02-29T00:00:00Z"'),
    (TimestamptzType(), "1700000000"),
]

USUAL: dict[PrimitiveType, str] = {
    BooleanType(): "true",
    LongType(): "7",
    IntegerType(): "7",
    DoubleType(): "7.5",
    DecimalType(9, 2): "7.50",
    DecimalType(18, 18): "0.7",
    DecimalType(38, 0): "7",
    DecimalType(38, 30): "7.5",
    DecimalType(38, 38): "0.7",
    StringType(): '"seven"',
    BinaryType(): '"Nw=="',
    DateType(): '"2007-07-07"',
    TimestamptzType(): '"2007-07-07T07:07:07Z"',
}
