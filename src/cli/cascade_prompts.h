// The default prompts of --threshold auto: questions of the kinds that people ask, from easy to hard.
#pragma once

#include <string_view>

namespace millrace {

inline constexpr std::string_view kCascadePrompts =
    R"(Hello! Who are you?
What is the capital of Italy?
What is 7 plus 5?
Name three primary colours.
Which planet is closest to the sun?
How many days does a leap year have?
What is 17 times 23?
What is the opposite of "generous"?
Translate "good morning" into Spanish.
Translate "The library closes at six." into German.
Who wrote Romeo and Juliet?
In which year did the Second World War end?
What is the chemical symbol of gold?
How do plants make food?
Explain in one sentence what an operating system does.
What does HTTP stand for?
Write a haiku about rain.
Write a short thank-you note to a neighbour who watered my plants.
Give me three names for a small bakery.
Summarise in one sentence: The meeting moved to Thursday because the room was taken, and lunch will be provided.
Is 91 a prime number?
What is the square root of 144?
A shirt costs 40 dollars and is reduced by 15 percent. What does it cost now?
If a train travels 180 km in 2.5 hours, what is its average speed?
Which is heavier, a kilogram of feathers or a kilogram of iron?
Sort these numbers: 9, 3, 14, 1, 7.
Write a Python function that returns the larger of two numbers.
Write a Python function that checks whether a string is a palindrome.
What does the keyword "static" mean in C?
What is the time complexity of binary search?
Write an SQL query that counts the orders of each customer.
What is the difference between a list and a tuple in Python?
Write a regular expression that matches a date such as 2024-05-31.
Why is the sky blue?
What causes the seasons?
What are the side effects of too much caffeine?
How do I boil an egg?
What should I pack for a weekend in the mountains?
Who was the third emperor of the Ming dynasty?
Explain the difference between correlation and causation with an example.)";

}  // namespace millrace
